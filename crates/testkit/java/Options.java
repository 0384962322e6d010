import java.io.File;
import java.io.InputStream;
import java.net.InetSocketAddress;
import java.net.SocketException;
import java.net.StandardSocketOptions;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLSocket;

/**
 * A program that knows nothing of Rejoin, and sets the options of sockets before the handshake. Says what they are
 * afterwards, what is there of a record after a part of it, and whether closed sockets leave descriptors behind.
 */
public final class Options {
  private static final int SOCKETS = 50;

  public static void main(String[] words) throws Exception {
    int port = Integer.parseInt(words[0]);
    try (SSLSocket socket = open(port)) {
      System.out.println("usual: " + socket.getTcpNoDelay() + ", " + socket.getKeepAlive() + ", " + socket.getSoLinger());
      refused(() -> socket.setSoLinger(true, -1));
      refused(() -> socket.setReceiveBufferSize(0));
      refused(() -> socket.setTrafficClass(256));
      refused(() -> socket.setOOBInline(true));
      set(socket);
      System.out.println("before: " + said(socket));
      socket.startHandshake();
      System.out.println("after: " + said(socket));
      socket.setSoLinger(false, 0);
      System.out.println("later: " + socket.getSoLinger());
      read(socket);
      socket.close();
      refused(() -> socket.getSoLinger());
      refused(() -> socket.setKeepAlive(true));
    }
    try (SSLSocket socket = (SSLSocket) SSLContext.getDefault().getSocketFactory().createSocket()) {
      socket.bind(new InetSocketAddress("127.0.0.1", 0));
      socket.connect(new InetSocketAddress("localhost", port), 5_000);
      socket.startHandshake();
      System.out.println("bound: " + socket.getLocalAddress());
    }
    int before = descriptors();
    for (int i = 0; i < SOCKETS; i++) {
      try (SSLSocket socket = open(port)) {
        set(socket);
        said(socket);
        socket.startHandshake();
      }
    }
    for (int i = 0; i < 100 && descriptors() > before + SOCKETS / 2; i++) {
      Thread.sleep(100);
    }
    System.out.println("all are closed: " + (descriptors() <= before + SOCKETS / 2));
  }

  private static SSLSocket open(int port) throws Exception {
    return (SSLSocket) SSLContext.getDefault().getSocketFactory().createSocket("localhost", port);
  }

  private static void set(SSLSocket socket) throws Exception {
    socket.setTcpNoDelay(true);
    socket.setKeepAlive(true);
    socket.setReuseAddress(true);
    socket.setSoLinger(true, 7);
    socket.setSendBufferSize(20_000);
    socket.setReceiveBufferSize(30_000);
    socket.setTrafficClass(0x10);
    socket.setOption(StandardSocketOptions.SO_KEEPALIVE, true);
  }

  private static String said(SSLSocket socket) throws Exception {
    return socket.getTcpNoDelay() + ", " + socket.getKeepAlive() + ", " + socket.getReuseAddress() + ", "
        + socket.getSoLinger() + ", " + socket.getSendBufferSize() + ", " + socket.getReceiveBufferSize() + ", "
        + socket.getTrafficClass() + ", " + socket.getOption(StandardSocketOptions.SO_LINGER) + ", "
        + socket.supportedOptions().contains(StandardSocketOptions.TCP_NODELAY);
  }

  private static void read(SSLSocket socket) throws Exception {
    socket.getOutputStream().write("GET / HTTP/1.0\r\n\r\n".getBytes());
    InputStream answer = socket.getInputStream();
    System.out.println("of nothing: " + answer.available());
    System.out.println("read: " + answer.read(new byte[10]));
    // Another object may be the same stream.
    int here = socket.getInputStream().available();
    System.out.println("more is here: " + (here > 0));
    System.out.println("read: " + (answer.readNBytes(here).length == here));
    answer.readAllBytes();
    System.out.println("at the end: " + answer.available() + ", " + answer.read());
  }

  private static int descriptors() {
    return new File("/proc/self/fd").list().length;
  }

  private interface Act {
    void run() throws Exception;
  }

  private static void refused(Act act) throws Exception {
    try {
      act.run();
      System.out.println("not refused");
    } catch (IllegalArgumentException | SocketException error) {
      System.out.println(error);
    }
  }
}
