import java.net.Socket;
import java.security.KeyStore;
import java.security.cert.CertificateException;
import java.security.cert.X509Certificate;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.TrustManagerFactory;
import javax.net.ssl.X509ExtendedTrustManager;
import javax.net.ssl.X509TrustManager;

/** Believes no server, though it knows the authorities. */
final class Doubter extends X509ExtendedTrustManager {
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
    throw new CertificateException("not " + chain[0].getSubjectX500Principal());
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
