package rejoin;

import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.Socket;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLSocketFactory;

/** Sockets that the manager may serve; those over a socket that stands already are the JDK's own. */
final class Sockets extends SSLSocketFactory {
  private final SSLContext jdk;
  private final Trust trust;

  Sockets(SSLContext jdk, Trust trust) {
    this.jdk = jdk;
    this.trust = trust;
  }

  @Override
  public String[] getDefaultCipherSuites() {
    return jdk.getSocketFactory().getDefaultCipherSuites();
  }

  @Override
  public String[] getSupportedCipherSuites() {
    return jdk.getSocketFactory().getSupportedCipherSuites();
  }

  @Override
  public Socket createSocket() throws IOException {
    int between = UrlSocket.factoriesBetween();
    if (between < 0) {
      return new ManagedSocket(jdk, trust, false);
    }
    // A factory of the program's may need what it gets to be a socket with TLS, and the host is not known yet.
    return between == 0 ? new UrlSocket(jdk, new ManagedSocket(jdk, trust, true)) : jdk.getSocketFactory().createSocket();
  }

  @Override
  public Socket createSocket(Socket under, String host, int port, boolean closes) throws IOException {
    if (under instanceof UrlSocket url) {
      return url.layered(host, port);
    }
    // Java cannot pass a descriptor to the manager.
    return jdk.getSocketFactory().createSocket(under, host, port, closes);
  }

  @Override
  public Socket createSocket(String host, int port) throws IOException {
    // The JDK's last resort after a proxy failed.
    boolean isOfUrl = UrlSocket.factoriesBetween() >= 0;
    return isOfUrl ? jdk.getSocketFactory().createSocket(host, port) : connected(new InetSocketAddress(host, port));
  }

  @Override
  public Socket createSocket(InetAddress host, int port) throws IOException {
    return connected(new InetSocketAddress(host, port));
  }

  @Override
  public Socket createSocket(String host, int port, InetAddress own, int ownPort) throws IOException {
    return jdk.getSocketFactory().createSocket(host, port, own, ownPort);
  }

  @Override
  public Socket createSocket(InetAddress host, int port, InetAddress own, int ownPort) throws IOException {
    return jdk.getSocketFactory().createSocket(host, port, own, ownPort);
  }

  private Socket connected(InetSocketAddress server) throws IOException {
    Socket socket = new ManagedSocket(jdk, trust, false);
    socket.connect(server);
    return socket;
  }
}
