package rejoin;

import java.security.cert.CertPathValidatorException;
import java.security.cert.CertificateEncodingException;
import java.security.cert.CertificateException;
import java.security.cert.X509Certificate;
import java.util.Base64;
import javax.net.ssl.SSLException;
import javax.net.ssl.SSLHandshakeException;
import javax.net.ssl.TrustManager;
import javax.net.ssl.X509ExtendedTrustManager;

/**
 * The application's trust. The application decides itself, on the real chain and at every connection; the manager
 * learns only as much as it needs to know which sessions may be shared.
 */
final class Trust {
  /** TLS 1.3 has no name for how keys are exchanged; JSSE says so, too. */
  static final String KEY_EXCHANGE = "UNKNOWN";
  /** The reason why the JDK makes the connection of an application that {@link #missesStatus}. */
  static final String MISSES_STATUS = "the program asks whether certificates are revoked";
  private static final String NONE = "\"none\"";
  /** The most PEM in a request, which has 256 KiB at most. */
  private static final int MOST_CHARACTERS = 192 * 1024;
  private static final int MOST_CAUSES = 16;

  private final X509ExtendedTrustManager decides;
  private String told;
  /** True if the application missed what the manager does not pass on: the server's own word that it is not revoked. */
  private volatile boolean missesStatus;

  private Trust(X509ExtendedTrustManager decides) {
    this.decides = decides;
  }

  /**
   * Returns the trust manager that JSSE would ask.
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

  /** A question to a trust manager about a chain. */
  interface Question {
    void ask(X509ExtendedTrustManager manager) throws CertificateException;
  }

  /**
   * Lets the application decide, and notes if it misses the server's stapled OCSP response.
   *
   * @throws SSLException JSSE's own, if the application does not trust the server
   */
  void judge(Question question) throws SSLException {
    SSLException refused;
    try {
      question.ask(decides);
      return;
    } catch (CertificateException no) {
      missesStatus |= missesStatus(no);
      refused = new SSLHandshakeException(no.getMessage());
      refused.initCause(no);
    } catch (RuntimeException failed) {
      refused = new SSLException(failed.getMessage(), failed);
    }
    throw refused;
  }

  private static boolean missesStatus(Throwable refused) {
    Throwable cause = refused;
    for (int depth = 0; cause != null && depth < MOST_CAUSES; depth++) {
      if (cause instanceof CertPathValidatorException of
          && of.getReason() == CertPathValidatorException.BasicReason.UNDETERMINED_REVOCATION_STATUS) {
        return true;
      }
      cause = cause.getCause();
    }
    return false;
  }

  /** Returns true if the application may need OCSP responses that servers staple, as far as is known by now. */
  boolean missesStatus() {
    return missesStatus;
  }

  /** Returns true if there is no basis on which sessions could be shared. */
  boolean sharesNothing() {
    return NONE.equals(told());
  }

  /** The request's field {@code trust}, as JSON. */
  synchronized String told() {
    if (told == null) {
      told = tell(issuers());
    }
    return told;
  }

  /** Returns the authorities. The JDK never asks a client for them, so an application may return null, or throw. */
  private X509Certificate[] issuers() {
    try {
      X509Certificate[] issuers = decides.getAcceptedIssuers();
      return issuers == null ? new X509Certificate[0] : issuers;
    } catch (RuntimeException none) {
      return new X509Certificate[0];
    }
  }

  private static String tell(X509Certificate[] issuers) {
    if (issuers.length == 0) {
      // It trusts something other than authorities: nothing is shared.
      return NONE;
    }
    Base64.Encoder base64 = Base64.getMimeEncoder(64, new byte[] {'\n'});
    StringBuilder bundle = new StringBuilder();
    try {
      for (X509Certificate issuer : issuers) {
        bundle.append("-----BEGIN CERTIFICATE-----\n").append(base64.encodeToString(issuer.getEncoded()));
        bundle.append("\n-----END CERTIFICATE-----\n");
      }
    } catch (CertificateEncodingException none) {
      return NONE;
    }
    if (bundle.length() > MOST_CHARACTERS) {
      // The JDK's authorities, or nearly: the system's are what the manager has.
      return "\"system\"";
    }
    return "{\"bundle\":" + Json.quoted(bundle.toString()) + "}";
  }
}
