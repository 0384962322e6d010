package rejoin;

import java.io.IOException;
import java.io.InputStream;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.Provider;
import java.security.Security;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLSocketFactory;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.Param;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.State;

/** A connection that resumes, a request and its answer: of the servers that {@link Bench} runs. */
@State(Scope.Benchmark)
public class Resumption {
  private static final byte[] REQUEST = "GET / HTTP/1.0\r\n\r\n".getBytes(StandardCharsets.US_ASCII);

  /** The maker of a connection: the JDK itself, or the manager, with certificates decoded each time or once. */
  public enum By {
    /** SunJSSE. */
    JDK,
    /** The manager, with certificates decoded at each connection. */
    MANAGER_DECODING,
    /** The manager, with certificates decoded once. */
    MANAGER
  }

  /** The server's. */
  @Param({"TLSv1.2", "TLSv1.3"})
  public String tls;

  /** The client's. */
  @Param
  public By by;

  private SSLSocketFactory sockets;
  private InetSocketAddress server;

  /** Made by JMH. */
  public Resumption() {}

  /** Leaves a session, and sees that it is resumed. */
  @Setup
  public void setUp() throws GeneralSecurityException, IOException {
    System.setProperty("rejoin.intern", String.valueOf(by != By.MANAGER_DECODING));
    Provider provider = by == By.JDK ? Security.getProvider("SunJSSE") : new Rejoin();
    SSLContext context = SSLContext.getInstance("TLS", provider);
    context.init(null, null, null);
    sockets = context.getSocketFactory();
    server = new InetSocketAddress("localhost", Integer.getInteger("bench." + tls));
    visit();
    connection();
  }

  /** Fails if it does not resume. */
  @Benchmark
  public String connection() throws IOException {
    String answer = visit();
    if (!answer.endsWith("session r\n")) {
      throw new IllegalStateException("not resumed: " + answer);
    }
    return answer;
  }

  private String visit() throws IOException {
    try (Socket socket = sockets.createSocket()) {
      socket.connect(server);
      // As HttpsURLConnection does; the manager always.
      socket.setTcpNoDelay(true);
      socket.getOutputStream().write(REQUEST);
      InputStream in = socket.getInputStream();
      return new String(in.readAllBytes(), StandardCharsets.US_ASCII);
    }
  }
}
