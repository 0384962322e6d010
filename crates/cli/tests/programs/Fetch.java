import java.io.InputStream;
import java.net.Socket;
import java.net.URL;
import java.security.KeyStore;
import java.security.cert.CertificateException;
import java.security.cert.X509Certificate;
import javax.net.ssl.HttpsURLConnection;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.TrustManager;
import javax.net.ssl.TrustManagerFactory;
import javax.net.ssl.X509ExtendedTrustManager;
import javax.net.ssl.X509TrustManager;

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

  private static final class Doubter extends X509ExtendedTrustManager {
    private final X509TrustManager known;

    Doubter() throws Exception {
      TrustManagerFactory factory = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
      factory.init((KeyStore) null);
      known = (X509TrustManager) factory.getTrustManagers()[0];
    }

    @Override
    public X509Certificate[] getAcceptedIssuers() {
      return known.getAcceptedIssuers();
    }

    @Override
    public void checkServerTrusted(X509Certificate[] chain, String type, Socket socket) throws CertificateException {
      throw new CertificateException("not " + chain[0].getSubjectX500Principal());
    }

    @Override
    public void checkServerTrusted(X509Certificate[] chain, String type, SSLEngine engine)
        throws CertificateException {
      throw new CertificateException("not with an engine");
    }

    @Override
    public void checkServerTrusted(X509Certificate[] chain, String type) throws CertificateException {
      throw new CertificateException("not without a socket");
    }

    @Override
    public void checkClientTrusted(X509Certificate[] chain, String type, Socket socket) {}

    @Override
    public void checkClientTrusted(X509Certificate[] chain, String type, SSLEngine engine) {}

    @Override
    public void checkClientTrusted(X509Certificate[] chain, String type) {}
  }
}
