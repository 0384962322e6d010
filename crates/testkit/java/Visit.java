import java.io.File;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.security.cert.PKIXBuilderParameters;
import java.security.cert.X509CertSelector;
import java.util.List;
import javax.net.ssl.CertPathTrustManagerParameters;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLSocket;
import javax.net.ssl.TrustManager;
import javax.net.ssl.TrustManagerFactory;

/**
 * A program that knows nothing of Rejoin, on {@code SSLSocket}s: says what came of each visit to a port. Further words:
 * {@code times=N} for so many visits; {@code pin=FILE} for the only key that it believes; {@code revocation} to ask
 * whether certificates are revoked.
 */
public final class Visit {
  public static void main(String[] words) throws Exception {
    List<String> told = List.of(words);
    SSLContext context = SSLContext.getInstance("TLS");
    context.init(null, managers(told), null);
    int times = Integer.parseInt(value(told, "times=", "1"));
    for (int i = 0; i < times; i++) {
      try (SSLSocket socket =
          (SSLSocket) context.getSocketFactory().createSocket("localhost", Integer.parseInt(words[0]))) {
        socket.setSoTimeout(20_000);
        socket.startHandshake();
        socket.getOutputStream().write("GET / HTTP/1.0\r\n\r\n".getBytes());
        System.out.println("well: " + (socket.getInputStream().readAllBytes().length > 0));
      } catch (Exception error) {
        System.out.println(error);
      }
    }
  }

  /** The program's own trust; null is the JDK's. */
  private static TrustManager[] managers(List<String> told) throws Exception {
    String pin = value(told, "pin=", "");
    if (!pin.isEmpty()) {
      String pem = Files.readString(Path.of(pin));
      return new TrustManager[] {new Doubter(pem.replaceAll("-----[^-]*-----|\\s", ""))};
    }
    return told.contains("revocation") ? askingForRevocation() : null;
  }

  /** Asks of each certificate whether it is revoked. */
  static TrustManager[] askingForRevocation() throws Exception {
    File store = new File(System.getProperty("javax.net.ssl.trustStore"));
    char[] password = System.getProperty("javax.net.ssl.trustStorePassword").toCharArray();
    PKIXBuilderParameters parameters =
        new PKIXBuilderParameters(KeyStore.getInstance(store, password), new X509CertSelector());
    parameters.setRevocationEnabled(true);
    TrustManagerFactory factory = TrustManagerFactory.getInstance("PKIX");
    factory.init(new CertPathTrustManagerParameters(parameters));
    return factory.getTrustManagers();
  }

  private static String value(List<String> words, String name, String otherwise) {
    return words.stream().filter(word -> word.startsWith(name)).findFirst()
        .map(word -> word.substring(name.length())).orElse(otherwise);
  }
}
