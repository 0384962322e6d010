package rejoin;

import java.io.ByteArrayInputStream;
import java.io.EOFException;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.SocketTimeoutException;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.security.cert.CertificateException;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/** The manager, spoken to as {@code docs/manager-protocol.md} says. */
final class Manager {
  private static final Path SYSTEM_SOCKET = Path.of("/run/rejoin/manager.sock");
  private static final int REQUEST_BYTES = 256 * 1024;
  private static final int ANSWER_BYTES = 1024 * 1024;
  /** For the handshake where the program says nothing; and past its deadline. */
  private static final int DEADLINE_MS = 10_000;
  private static final int PATIENCE_MS = 3_000;

  private Manager() {}

  /** A connection that stands: plaintext flows over the channel, which does not block. */
  static final class Connection {
    final Pipe pipe;
    final String id;
    final ManagedSession session;

    private Connection(Pipe pipe, String id, ManagedSession session) {
      this.pipe = pipe;
      this.id = id;
      this.session = session;
    }
  }

  /**
   * Asks for a connection.
   *
   * @param trust a value of the field {@code trust}, as JSON
   * @throws IOException there is no manager, it does not answer, or says why there is no connection
   */
  static Connection connect(
      String host, InetSocketAddress server, String trust, List<String> protocols, boolean onlyTls13, int deadlineMs)
      throws IOException {
    int deadline = deadlineMs > 0 ? Math.min(deadlineMs, 120_000) : DEADLINE_MS;
    StringBuilder wish = new StringBuilder("{\"rejoin\":1,\"connect\":{\"host\":").append(Json.quoted(host));
    wish.append(",\"port\":").append(server.getPort());
    wish.append(",\"addresses\":[").append(Json.quoted(address(server))).append(']');
    wish.append(",\"trust\":").append(trust).append(",\"deadline_ms\":").append(deadline);
    if (!protocols.isEmpty()) {
      List<String> quoted = new ArrayList<>();
      protocols.forEach(name -> quoted.add(Json.quoted(name)));
      wish.append(",\"alpn\":[").append(String.join(",", quoted)).append(']');
    }
    wish.append(onlyTls13 ? ",\"min_version\":\"1.3\"}}" : "}}");
    Pipe pipe = null;
    try {
      pipe = new Pipe(dial());
      Map<?, ?> facts = asked(pipe, wish.toString(), "connected", deadline + PATIENCE_MS);
      String id = (String) facts.get("connection");
      Connection connection = new Connection(pipe, id, ManagedSession.of(host, server.getPort(), facts, chain(facts)));
      pipe = null;
      return connection;
    } catch (ClassCastException | IllegalArgumentException | CertificateException wrong) {
      throw new IOException("rejoin manager answered something else", wrong);
    } finally {
      if (pipe != null) {
        pipe.close();
      }
    }
  }

  /** Whether the server said that what came of this connection was all. */
  static boolean endedWell(String id) {
    String wish = "{\"rejoin\":1,\"end\":{\"connection\":" + Json.quoted(id) + "}}";
    try (Pipe pipe = new Pipe(dial())) {
      return "clean".equals(answer(pipe, wish, PATIENCE_MS).get("end"));
    } catch (IOException | ClassCastException | IllegalArgumentException unknown) {
      return false;
    }
  }

  /** {@code rejoin.socket}, else the user's own manager, else the system's. */
  private static SocketChannel dial() throws IOException {
    List<Path> places = new ArrayList<>();
    String said = System.getProperty("rejoin.socket");
    String runtime = System.getenv("XDG_RUNTIME_DIR");
    if (said != null) {
      places.add(Path.of(said));
    } else {
      if (runtime != null && !runtime.isEmpty()) {
        places.add(Path.of(runtime, "rejoin.sock"));
      }
      places.add(SYSTEM_SOCKET);
    }
    IOException first = null;
    for (Path place : places) {
      SocketChannel channel = SocketChannel.open(StandardProtocolFamily.UNIX);
      try {
        channel.connect(UnixDomainSocketAddress.of(place));
        return channel;
      } catch (IOException nobody) {
        channel.close();
        first = first == null ? nobody : first;
      }
    }
    throw first;
  }

  private static Map<?, ?> asked(Pipe pipe, String wish, String wanted, int patienceMs) throws IOException {
    Map<?, ?> answer = answer(pipe, wish, patienceMs);
    if (answer.get("error") instanceof Map<?, ?> problem) {
      throw new IOException(problem.get("kind") + ": " + problem.get("detail"));
    }
    if (answer.get(wanted) instanceof Map<?, ?> facts) {
      return facts;
    }
    throw new IllegalArgumentException("no " + wanted);
  }

  private static Map<?, ?> answer(Pipe pipe, String wish, int patienceMs) throws IOException {
    byte[] message = wish.getBytes(StandardCharsets.UTF_8);
    if (message.length > REQUEST_BYTES) {
      throw new IOException("the request is longer than rejoin manager reads");
    }
    long until = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(patienceMs);
    pipe.write(ByteBuffer.allocate(4 + message.length).putInt(message.length).put(message).flip());
    int bytes = exactly(pipe, 4, until).getInt();
    if (bytes < 0 || bytes > ANSWER_BYTES) {
      throw new IOException("the answer is longer than those of rejoin manager");
    }
    Object answer = Json.read(StandardCharsets.UTF_8.decode(exactly(pipe, bytes, until)).toString());
    Map<?, ?> said = (Map<?, ?>) answer;
    if (!Double.valueOf(1).equals(said.get("rejoin"))) {
      throw new IOException("rejoin manager is of another version");
    }
    return said;
  }

  private static ByteBuffer exactly(Pipe pipe, int bytes, long until) throws IOException {
    ByteBuffer room = ByteBuffer.allocate(bytes);
    while (room.hasRemaining()) {
      long leftMs = TimeUnit.NANOSECONDS.toMillis(until - System.nanoTime());
      if (leftMs <= 0) {
        throw new SocketTimeoutException("rejoin manager does not answer");
      }
      if (pipe.read(room, (int) leftMs) < 0) {
        throw new EOFException("rejoin manager went away");
      }
    }
    return room.flip();
  }

  private static X509Certificate[] chain(Map<?, ?> facts) throws CertificateException {
    CertificateFactory factory = CertificateFactory.getInstance("X.509");
    List<X509Certificate> chain = new ArrayList<>();
    for (Object of : (List<?>) facts.get("chain")) {
      byte[] der = Base64.getDecoder().decode((String) ((Map<?, ?>) of).get("der"));
      chain.add((X509Certificate) factory.generateCertificate(new ByteArrayInputStream(der)));
    }
    return chain.toArray(new X509Certificate[0]);
  }

  /** Without a zone, which means nothing to another process. */
  private static String address(InetSocketAddress server) {
    return server.getAddress().getHostAddress().replaceFirst("%.*", "");
  }
}
