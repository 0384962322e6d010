package rejoin;

import java.security.cert.CertificateEncodingException;
import java.security.cert.X509Certificate;
import java.util.Base64;
import javax.net.ssl.TrustManager;
import javax.net.ssl.X509ExtendedTrustManager;

/**
 * What the application trusts. It decides itself, on the real chain and at every connection; the manager is told as
 * much of it as it needs to know which sessions may be shared.
 */
final class Trust {
  /** Of a request, which has 256 KiB at most, in PEM. */
  private static final int MOST_CHARACTERS = 192 * 1024;

  private final X509ExtendedTrustManager decides;
  private String told;

  private Trust(X509ExtendedTrustManager decides) {
    this.decides = decides;
  }

  /**
   * Of an application's trust managers the one that JSSE would ask.
   *
   * @return null if the JDK wraps it in checks of its own, which only the JDK can do
   */
  static Trust of(TrustManager[] managers) {
    for (TrustManager manager : managers) {
      if (manager instanceof X509ExtendedTrustManager) {
        return new Trust((X509ExtendedTrustManager) manager);
      }
      if (manager instanceof javax.net.ssl.X509TrustManager) {
        return null;
      }
    }
    return null;
  }

  X509ExtendedTrustManager decides() {
    return decides;
  }

  /** The request's field {@code trust}, as JSON. */
  synchronized String told() {
    if (told == null) {
      told = tell(decides.getAcceptedIssuers());
    }
    return told;
  }

  private static String tell(X509Certificate[] issuers) {
    if (issuers.length == 0) {
      // It believes in something else than authorities: nothing of it is shared.
      return "\"none\"";
    }
    Base64.Encoder base64 = Base64.getMimeEncoder(64, new byte[] {'\n'});
    StringBuilder bundle = new StringBuilder();
    try {
      for (X509Certificate issuer : issuers) {
        bundle.append("-----BEGIN CERTIFICATE-----\n").append(base64.encodeToString(issuer.getEncoded()));
        bundle.append("\n-----END CERTIFICATE-----\n");
      }
    } catch (CertificateEncodingException none) {
      return "\"none\"";
    }
    if (bundle.length() > MOST_CHARACTERS) {
      // The JDK's authorities, or nearly: the system's are what the manager has.
      return "\"system\"";
    }
    return "{\"bundle\":" + Json.quoted(bundle.toString()) + "}";
  }
}
