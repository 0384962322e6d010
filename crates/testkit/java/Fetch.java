import java.io.InputStream;
import java.net.URL;
import javax.net.ssl.HttpsURLConnection;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManager;

/**
 * A program that knows nothing of Rejoin: says what came of a URL, and of its TLS connection. With a second word it
 * believes no server, though it knows the authorities.
 */
public final class Fetch {
  public static void main(String[] words) {
    try {
      HttpsURLConnection connection = (HttpsURLConnection) new URL(words[0]).openConnection();
      connection.setReadTimeout(20_000);
      if (words.length > 1) {
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(null, new TrustManager[] {new Doubter()}, null);
        connection.setSSLSocketFactory(context.getSocketFactory());
      }
      try (InputStream body = connection.getInputStream()) {
        String text = new String(body.readAllBytes()).strip();
        System.out.println(connection.getResponseCode() + "; " + text + "; " + connection.getPeerPrincipal());
      }
    } catch (Exception error) {
      System.out.println(error);
      System.exit(1);
    }
  }
}
