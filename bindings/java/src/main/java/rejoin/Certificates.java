package rejoin;

import java.io.ByteArrayInputStream;
import java.lang.ref.SoftReference;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.security.cert.CertificateException;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * Servers' certificates, decoded once: a server shows the same ones at each connection, and the manager does not send
 * those that are here. The garbage collector may take them when memory runs short. Any number of threads may use it.
 *
 * <p>With {@code -Drejoin.intern=false} each is sent and decoded anew.
 */
final class Certificates {
  /** Decoded certificates that are kept, of some 6 KiB each. */
  static final int MOST_CERTIFICATES = 1_024;
  static final int MOST_PLACES = 1_024;
  /** The most fingerprints that a request may name. */
  private static final int MOST_KNOWN = 64;

  static final Certificates OF_THIS_PROCESS = new Certificates();

  private final Map<String, SoftReference<X509Certificate>> decoded = recent(MOST_CERTIFICATES);
  /** The fingerprints of the chain that a place showed last. */
  private final Map<String, List<String>> chains = recent(MOST_PLACES);

  /** Returns the certificates that the manager need not send for a place; the map keeps them from being collected. */
  synchronized Map<String, X509Certificate> known(String place) {
    Map<String, X509Certificate> known = new LinkedHashMap<>();
    for (String fingerprint : isOff() ? List.<String>of() : chains.getOrDefault(place, List.of())) {
      X509Certificate certificate = get(fingerprint);
      if (certificate != null && known.size() < MOST_KNOWN) {
        known.put(fingerprint, certificate);
      }
    }
    return known;
  }

  /**
   * Returns the chain of an answer.
   *
   * @param known the certificates that the request named
   * @throws IllegalArgumentException if it is not a chain
   */
  X509Certificate[] chain(String place, List<?> told, Map<String, X509Certificate> known) throws CertificateException {
    if (told.isEmpty()) {
      throw new IllegalArgumentException("no certificate");
    }
    List<X509Certificate> chain = new ArrayList<>();
    List<String> fingerprints = new ArrayList<>();
    for (Object of : told) {
      if (!(of instanceof Map<?, ?> one)) {
        throw new IllegalArgumentException("a certificate is none");
      }
      String fingerprint = Json.of(one, "sha256", String.class);
      X509Certificate certificate = known.get(fingerprint);
      chain.add(certificate != null ? certificate : decode(fingerprint, (String) one.get("der")));
      fingerprints.add(fingerprint);
    }
    if (!isOff()) {
      synchronized (this) {
        chains.put(place, List.copyOf(fingerprints));
      }
    }
    return chain.toArray(new X509Certificate[0]);
  }

  /** A certificate of this fingerprint, which comes in base64. */
  X509Certificate decode(String fingerprint, String base64) throws CertificateException {
    X509Certificate known = isOff() ? null : get(fingerprint);
    if (known != null) {
      return known;
    }
    if (base64 == null) {
      throw new IllegalArgumentException("a certificate is missing");
    }
    byte[] der = Base64.getDecoder().decode(base64);
    CertificateFactory factory = CertificateFactory.getInstance("X.509");
    X509Certificate certificate = (X509Certificate) factory.generateCertificate(new ByteArrayInputStream(der));
    // Under a wrong name it would be another server's.
    if (!isOff() && sha256(der).equals(fingerprint)) {
      synchronized (this) {
        X509Certificate first = get(fingerprint);
        if (first != null) {
          return first;
        }
        decoded.put(fingerprint, new SoftReference<>(certificate));
      }
    }
    return certificate;
  }

  private synchronized X509Certificate get(String fingerprint) {
    SoftReference<X509Certificate> reference = decoded.get(fingerprint);
    return reference == null ? null : reference.get();
  }

  private static boolean isOff() {
    return "false".equals(System.getProperty("rejoin.intern"));
  }

  private static String sha256(byte[] der) throws CertificateException {
    try {
      return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(der));
    } catch (GeneralSecurityException none) {
      throw new CertificateException(none);
    }
  }

  /** Makes a map that drops the least recently used entry first. */
  private static <V> Map<String, V> recent(int most) {
    return new LinkedHashMap<>(16, 0.75f, true) {
      private static final long serialVersionUID = 1;

      @Override
      protected boolean removeEldestEntry(Map.Entry<String, V> eldest) {
        return size() > most;
      }
    };
  }
}
