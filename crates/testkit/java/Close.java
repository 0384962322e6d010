import java.io.IOException;
import java.io.InputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.SocketException;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLSocket;

/** A program that knows nothing of Rejoin, and closes a socket while its handshake waits for a silent server. */
public final class Close {
  private static volatile String heard;

  public static void main(String[] words) throws Exception {
    try (ServerSocket server = new ServerSocket(0, 8, InetAddress.getByName("127.0.0.1"))) {
      SSLSocket socket = (SSLSocket) SSLContext.getDefault().getSocketFactory().createSocket();
      socket.connect(new InetSocketAddress("localhost", server.getLocalPort()), 60_000);
      Thread closes = new Thread(() -> close(server, socket));
      closes.start();
      long begun = System.nanoTime();
      try {
        // The JDK's returns, or fails, as it happens.
        socket.startHandshake();
      } catch (SocketException closed) {
        // As wanted.
      }
      System.out.println("ended in time: " + (System.nanoTime() - begun < 10_000_000_000L));
      closes.join();
      System.out.println("is closed: " + socket.isClosed() + "; " + heard);
    }
  }

  /** Closes the socket when its connection is there, and waits for the end of that. */
  private static void close(ServerSocket server, SSLSocket socket) {
    try (Socket client = server.accept()) {
      client.setSoTimeout(10_000);
      InputStream hello = client.getInputStream();
      hello.read();
      socket.close();
      while (hello.read() >= 0) {}
      heard = "the connection is over";
    } catch (SocketException reset) {
      heard = "the connection is over";
    } catch (IOException error) {
      heard = error.toString();
    }
  }
}
