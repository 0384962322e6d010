package rejoin;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.SocketAddress;
import java.net.SocketException;
import java.util.List;
import javax.net.ssl.SSLContext;

/**
 * The socket that {@code HttpsURLConnection} connects, until it asks for TLS over it and says for which host.
 *
 * <p>The JDK makes an {@link javax.net.ssl.SNIHostName} of the host for every TLS socket that is not its own, and fails
 * where the host is none: an IPv6 address, a name with a dot at its end. Such a host gets a socket of the JDK's. Only the
 * JDK sees this class, and calls no other methods than these.
 */
final class UrlSocket extends Socket {
  /** The JDK's class that connects for {@code HttpsURLConnection}. */
  private static final String CLIENT = "sun.net.www.protocol.https.HttpsClient";
  private static final int CALLERS = 16;

  private final SSLContext jdk;
  /** Null if the JDK does TLS. */
  private ManagedSocket managed;
  /** What is connected: {@code managed}, or a socket of the JDK's. */
  private volatile Socket connected;

  UrlSocket(SSLContext jdk, ManagedSocket managed) {
    this.jdk = jdk;
    this.managed = managed;
    connected = managed;
  }

  /**
   * Tells how {@code HttpsURLConnection} asked for a socket.
   *
   * @return -1 if it did not ask, 0 if it asked the provider's factory itself, more if it asked a factory of the program's
   *     that stands before it
   */
  static int factoriesBetween() {
    List<String> callers = StackWalker.getInstance()
        .walk(frames -> frames.skip(2).limit(CALLERS).map(StackWalker.StackFrame::getClassName).toList());
    return callers.indexOf(CLIENT);
  }

  /** Returns the socket with TLS over this. */
  Socket layered(String host, int port) throws IOException {
    return managed != null ? managed : jdk.getSocketFactory().createSocket(connected, host, port, true);
  }

  @Override
  public void connect(SocketAddress server) throws IOException {
    connect(server, 0);
  }

  @Override
  public void connect(SocketAddress server, int timeoutMs) throws IOException {
    if (server instanceof InetSocketAddress named && !Wanted.isName(named.getHostString())) {
      Socket fresh = new Socket();
      fresh.setSoTimeout(connected.getSoTimeout());
      connected = fresh;
      managed = null;
    }
    connected.connect(server, timeoutMs);
  }

  @Override
  public boolean isConnected() {
    return connected.isConnected();
  }

  @Override
  public InetAddress getLocalAddress() {
    return connected.getLocalAddress();
  }

  @Override
  public void setSoTimeout(int timeoutMs) throws SocketException {
    connected.setSoTimeout(timeoutMs);
  }

  @Override
  public int getSoTimeout() throws SocketException {
    return connected.getSoTimeout();
  }

  @Override
  public void setTcpNoDelay(boolean on) throws SocketException {
    connected.setTcpNoDelay(on);
  }

  @Override
  public boolean getTcpNoDelay() throws SocketException {
    return connected.getTcpNoDelay();
  }

  @Override
  public InputStream getInputStream() throws IOException {
    return connected.getInputStream();
  }

  @Override
  public OutputStream getOutputStream() throws IOException {
    return connected.getOutputStream();
  }

  @Override
  public boolean isClosed() {
    return connected.isClosed();
  }

  @Override
  public void close() throws IOException {
    connected.close();
  }

  @Override
  public String toString() {
    return connected.toString();
  }
}
