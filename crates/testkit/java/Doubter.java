import java.net.Socket;
import java.security.KeyStore;
import java.security.cert.CertificateException;
import java.security.cert.X509Certificate;
import java.util.Base64;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.TrustManagerFactory;
import javax.net.ssl.X509ExtendedTrustManager;

/** Believes no server, though it knows the authorities, or the one with the key that it pins. */
final class Doubter extends X509ExtendedTrustManager {
  private final X509ExtendedTrustManager known;
  private final String pinned;

  Doubter() throws Exception {
    this(null);
  }

  /** Pins a key, in base64. */
  Doubter(String pinned) throws Exception {
    TrustManagerFactory factory = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
    factory.init((KeyStore) null);
    known = (X509ExtendedTrustManager) factory.getTrustManagers()[0];
    this.pinned = pinned;
  }

  @Override
  public X509Certificate[] getAcceptedIssuers() {
    return known.getAcceptedIssuers();
  }

  @Override
  public void checkServerTrusted(X509Certificate[] chain, String type, Socket socket) throws CertificateException {
    compare(chain);
    known.checkServerTrusted(chain, type, socket);
  }

  @Override
  public void checkServerTrusted(X509Certificate[] chain, String type, SSLEngine engine)
      throws CertificateException {
    compare(chain);
    known.checkServerTrusted(chain, type, engine);
  }

  private void compare(X509Certificate[] chain) throws CertificateException {
    String key = Base64.getEncoder().encodeToString(chain[0].getPublicKey().getEncoded());
    if (!key.equals(pinned)) {
      throw new CertificateException("not " + chain[0].getSubjectX500Principal());
    }
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
