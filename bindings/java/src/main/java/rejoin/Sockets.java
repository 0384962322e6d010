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
  public Socket createSocket() {
    return new ManagedSocket(jdk, trust);
  }

  @Override
  public Socket createSocket(Socket under, String host, int port, boolean closes) throws IOException {
    // Java cannot pass a descriptor to the manager.
    return jdk.getSocketFactory().createSocket(under, host, port, closes);
  }

  @Override
  public Socket createSocket(String host, int port) throws IOException {
    return connected(new InetSocketAddress(host, port));
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
    Socket socket = createSocket();
    socket.connect(server);
    return socket;
  }
}
