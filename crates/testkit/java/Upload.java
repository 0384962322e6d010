import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLSocket;

/** A program that knows nothing of Rejoin: writes so many bytes to a port, so many times, and closes each socket at once. */
public final class Upload {
  public static void main(String[] words) throws Exception {
    int port = Integer.parseInt(words[0]);
    for (int i = 0; i < Integer.parseInt(words[1]); i++) {
      try (SSLSocket socket = (SSLSocket) SSLContext.getDefault().getSocketFactory().createSocket("localhost", port)) {
        socket.getOutputStream().write(new byte[Integer.parseInt(words[2])]);
      }
    }
  }
}
