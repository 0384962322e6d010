import java.net.InetSocketAddress;
import java.util.Arrays;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLSocket;

/**
 * A program that knows nothing of Rejoin, and makes choices of its own by {@code SSLParameters}. Says what its sockets have
 * of them, and whether its sessions have ids, as the JDK's do.
 */
public final class Choose {
  public static void main(String[] words) throws Exception {
    int port = Integer.parseInt(words[0]);
    choose(port, "MaximumPacketSize", int.class, 4096);
    choose(port, "NamedGroups", String[].class, new String[] {"secp384r1"});
    choose(port, "SignatureSchemes", String[].class, new String[] {"ecdsa_secp256r1_sha256", "rsa_pss_rsae_sha256"});
  }

  private static void choose(int port, String name, Class<?> type, Object value) throws Exception {
    SSLParameters parameters = SSLContext.getDefault().getDefaultSSLParameters();
    try {
      SSLParameters.class.getMethod("set" + name, type).invoke(parameters, value);
    } catch (NoSuchMethodException older) {
      System.out.println(name + ": this JDK has none");
      return;
    }
    try (SSLSocket socket = (SSLSocket) SSLContext.getDefault().getSocketFactory().createSocket()) {
      socket.setSSLParameters(parameters);
      Object had = SSLParameters.class.getMethod("get" + name).invoke(socket.getSSLParameters());
      socket.connect(new InetSocketAddress("localhost", port), 20_000);
      socket.startHandshake();
      String said = had instanceof String[] ? Arrays.toString((String[]) had) : String.valueOf(had);
      System.out.println(name + ": " + said + ", " + (socket.getSession().getId().length > 0));
    }
  }
}
