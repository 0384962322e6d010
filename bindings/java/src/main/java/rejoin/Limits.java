package rejoin;

import java.security.AlgorithmConstraints;
import java.security.AlgorithmParameters;
import java.security.CryptoPrimitive;
import java.security.GeneralSecurityException;
import java.security.spec.ECGenParameterSpec;
import java.util.EnumSet;
import java.util.List;
import java.util.Set;

/**
 * The JVM's own limits on groups and signature schemes. The manager does not know them, and may agree with a server on any
 * that it has itself.
 */
final class Limits {
  /** The properties that name the only ones which the JVM offers. */
  private static final List<String> PROPERTIES = List.of("jdk.tls.namedGroups", "jdk.tls.client.SignatureSchemes");

  private static final Set<CryptoPrimitive> AGREEMENT = EnumSet.of(CryptoPrimitive.KEY_AGREEMENT);
  private static final Set<CryptoPrimitive> SIGNATURE = EnumSet.of(CryptoPrimitive.SIGNATURE);
  /** The manager's groups by the names of TLS, and what they are made of by Java's. */
  private static final List<String> GROUPS =
      List.of("x25519", "secp256r1", "secp384r1", "X25519MLKEM768", "XDH", "EC", "ML-KEM", "ML-KEM-768");
  /** Those whose size may be too small. */
  private static final List<String> CURVES = List.of("secp256r1", "secp384r1");
  /** The manager's signature schemes by the names of TLS, and what they are made of by Java's. */
  private static final List<String> SCHEMES = List.of(
      "ecdsa_secp256r1_sha256", "ecdsa_secp384r1_sha384", "ecdsa_secp521r1_sha512", "ed25519",
      "rsa_pss_rsae_sha256", "rsa_pss_rsae_sha384", "rsa_pss_rsae_sha512",
      "rsa_pkcs1_sha256", "rsa_pkcs1_sha384", "rsa_pkcs1_sha512", "mldsa44", "mldsa65", "mldsa87",
      "EC", "SHA256withECDSA", "SHA384withECDSA", "SHA512withECDSA", "EdDSA",
      "RSA", "RSASSA-PSS", "SHA256withRSA", "SHA384withRSA", "SHA512withRSA", "ML-DSA");

  /** The last answer: the JVM's constraints are one object. */
  private static volatile Found last = new Found(null, false);

  private record Found(AlgorithmConstraints constraints, boolean allow) {}

  private Limits() {}

  /**
   * Returns true if the JVM has no limits that the manager may exceed.
   *
   * @param constraints those of {@code jdk.tls.disabledAlgorithms}; null if they are not known
   */
  static boolean allow(AlgorithmConstraints constraints) {
    if (constraints == null || PROPERTIES.stream().anyMatch(name -> !System.getProperty(name, "").isEmpty())) {
      return false;
    }
    Found found = last;
    if (found.constraints != constraints) {
      found = new Found(constraints, allowAll(constraints));
      last = found;
    }
    return found.allow;
  }

  private static boolean allowAll(AlgorithmConstraints constraints) {
    return GROUPS.stream().allMatch(name -> constraints.permits(AGREEMENT, name, null))
        && SCHEMES.stream().allMatch(name -> constraints.permits(SIGNATURE, name, null))
        && CURVES.stream().allMatch(name -> allowCurve(constraints, name));
  }

  private static boolean allowCurve(AlgorithmConstraints constraints, String name) {
    try {
      AlgorithmParameters curve = AlgorithmParameters.getInstance("EC");
      curve.init(new ECGenParameterSpec(name));
      return constraints.permits(AGREEMENT, "EC", curve);
    } catch (GeneralSecurityException none) {
      return false;
    }
  }
}
