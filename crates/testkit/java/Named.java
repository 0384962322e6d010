import java.io.IOException;
import java.io.InputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.URI;
import java.net.URL;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.util.List;
import javax.net.ssl.HttpsURLConnection;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.SSLEngineResult.HandshakeStatus;
import javax.net.ssl.SSLEngineResult.Status;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLSocket;
import javax.net.ssl.SSLSocketFactory;

/**
 * A program that knows nothing of Rejoin. Says which virtual host answers where it gives a name, gives none, or leaves that
 * to the JDK, at a port and at one where nobody listens.
 */
public final class Named {
  private static int port;

  private interface Act {
    Object run() throws Exception;
  }

  public static void main(String[] words) throws Exception {
    port = Integer.parseInt(words[0]);
    for (String host : List.of("a.test", "a.test.", "x_y.b.test", "127.0.0.1", "[::1]")) {
      say("a URL of " + host, () -> fetch(host, port, "/", null));
    }
    say("the connection is kept", () -> fetch("a.test", port, "/", null));
    say("the connection is kept, with the dot", () -> fetch("a.test.", port, "/", null));
    say("a silent server", () -> fetch("a.test", port, "/silent", null));
    say("a silent server, with the dot", () -> fetch("a.test.", port, "/silent", null));
    SSLSocketFactory own = new Own((SSLSocketFactory) SSLSocketFactory.getDefault());
    for (String host : List.of("a.test", "a.test.")) {
      say("by a factory of its own " + host, () -> fetch(host, port, "/", own));
      say("nobody at " + host, () -> fetch(host, Integer.parseInt(words[1]), "/", null));
    }
    for (String host : List.of("a.test", "x_y.b.test", "localhost", "127.0.0.1")) {
      say("a socket to " + host, () -> open(host, null));
    }
    say("a socket without a name", () -> open("a.test", List.of()));
    say("an engine", () -> drive("a.test", null));
    say("an engine for a host without a dot", () -> drive("localhost", null));
    say("an engine without a name", () -> drive("a.test", List.of()));
    for (String host : List.of("a.test", "a.test.", "localhost")) {
      say("a client for " + host, () -> ask(host));
    }
  }

  private static void say(String what, Act act) {
    String said;
    try {
      said = String.valueOf(act.run());
    } catch (Exception error) {
      said = error.getClass().getName();
    }
    System.out.println(what + ": " + said);
  }

  private static String fetch(String host, int at, String path, SSLSocketFactory own) throws Exception {
    HttpsURLConnection connection =
        (HttpsURLConnection) new URL("https://" + host + ":" + at + path).openConnection();
    connection.setConnectTimeout(20_000);
    connection.setReadTimeout(path.equals("/") ? 20_000 : 1_000);
    if (own != null) {
      connection.setSSLSocketFactory(own);
    }
    try (InputStream body = connection.getInputStream()) {
      return new String(body.readAllBytes()) + ", " + connection.getPeerPrincipal();
    }
  }

  /** The JDK resumes a named session without a name, too: each of these connections has a cache of its own. */
  private static SSLContext context() throws Exception {
    SSLContext context = SSLContext.getInstance("TLS");
    context.init(null, null, null);
    return context;
  }

  private static Object open(String host, List<javax.net.ssl.SNIServerName> names) throws Exception {
    try (SSLSocket socket = (SSLSocket) context().getSocketFactory().createSocket(host, port)) {
      SSLParameters parameters = socket.getSSLParameters();
      if (names != null) {
        parameters.setServerNames(names);
      }
      socket.setSSLParameters(parameters);
      socket.setSoTimeout(20_000);
      socket.startHandshake();
      socket.getOutputStream().write("GET / HTTP/1.1\r\n\r\n".getBytes());
      return socket.getInputStream().read() > 0 ? socket.getSession().getPeerPrincipal() : "nothing";
    }
  }

  private static Object drive(String host, List<javax.net.ssl.SNIServerName> names) throws Exception {
    SSLEngine engine = context().createSSLEngine(host, port);
    engine.setUseClientMode(true);
    if (names != null) {
      SSLParameters parameters = engine.getSSLParameters();
      parameters.setServerNames(names);
      engine.setSSLParameters(parameters);
    }
    ByteBuffer nothing = ByteBuffer.allocate(0);
    ByteBuffer out = ByteBuffer.allocate(64 * 1024);
    ByteBuffer in = ByteBuffer.allocate(64 * 1024);
    ByteBuffer read = ByteBuffer.allocate(64 * 1024);
    boolean needsMore = true;
    try (SocketChannel channel = SocketChannel.open(new InetSocketAddress(host, port))) {
      for (HandshakeStatus status = HandshakeStatus.NEED_WRAP; ; status = engine.getHandshakeStatus()) {
        switch (status) {
          case NEED_TASK -> engine.getDelegatedTask().run();
          case NEED_WRAP -> {
            engine.wrap(nothing, out.clear());
            channel.write(out.flip());
          }
          case NEED_UNWRAP, NEED_UNWRAP_AGAIN -> {
            if (needsMore && channel.read(in) < 0) {
              return "an end";
            }
            needsMore = engine.unwrap(in.flip(), read).getStatus() == Status.BUFFER_UNDERFLOW || !in.hasRemaining();
            in.compact();
          }
          default -> {
            return engine.getSession().getPeerPrincipal();
          }
        }
      }
    }
  }

  private static Object ask(String host) throws Exception {
    HttpRequest request = HttpRequest.newBuilder(URI.create("https://" + host + ":" + port + "/"))
        .version(HttpClient.Version.HTTP_1_1).build();
    return HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString()).sslSession().get()
        .getPeerPrincipal();
  }

  /** A factory that takes what it gets for a socket with TLS. */
  private static final class Own extends SSLSocketFactory {
    private final SSLSocketFactory behind;

    Own(SSLSocketFactory behind) {
      this.behind = behind;
    }

    private static Socket set(Socket socket) throws IOException {
      ((SSLSocket) socket).setEnabledProtocols(new String[] {"TLSv1.3", "TLSv1.2"});
      return socket;
    }

    @Override
    public String[] getDefaultCipherSuites() {
      return behind.getDefaultCipherSuites();
    }

    @Override
    public String[] getSupportedCipherSuites() {
      return behind.getSupportedCipherSuites();
    }

    @Override
    public Socket createSocket() throws IOException {
      return set(behind.createSocket());
    }

    @Override
    public Socket createSocket(Socket under, String host, int at, boolean closes) throws IOException {
      return set(behind.createSocket(under, host, at, closes));
    }

    @Override
    public Socket createSocket(String host, int at) throws IOException {
      return set(behind.createSocket(host, at));
    }

    @Override
    public Socket createSocket(InetAddress host, int at) throws IOException {
      return set(behind.createSocket(host, at));
    }

    @Override
    public Socket createSocket(String host, int at, InetAddress own, int ownPort) throws IOException {
      return set(behind.createSocket(host, at, own, ownPort));
    }

    @Override
    public Socket createSocket(InetAddress host, int at, InetAddress own, int ownPort) throws IOException {
      return set(behind.createSocket(host, at, own, ownPort));
    }
  }
}
