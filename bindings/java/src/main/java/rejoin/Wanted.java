package rejoin;

import java.util.Arrays;
import java.util.List;
import javax.net.ssl.SNIHostName;
import javax.net.ssl.SNIServerName;
import javax.net.ssl.SSLParameters;

/** The connection that a program wants, as far as the manager is told. */
record Wanted(String host, int port, List<String> protocols, boolean onlyTls13, boolean isNamed) {
  /** The suites that the manager may agree on. */
  private static final List<String> TLS13_SUITES =
      List.of("TLS_AES_256_GCM_SHA384", "TLS_AES_128_GCM_SHA256", "TLS_CHACHA20_POLY1305_SHA256");

  private static final List<String> TLS12_SUITES = List.of(
      "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
      "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
      "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
      "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
      "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
      "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256");

  /** The choices of newer JDKs, which are arrays of names. */
  private static final List<String> NEWER = List.of("NamedGroups", "SignatureSchemes");

  static Wanted of(String host, int port, SSLParameters parameters) {
    String[] protocols = parameters.getApplicationProtocols();
    boolean tls12 = Arrays.asList(parameters.getProtocols()).contains("TLSv1.2");
    boolean isNamed = isNamed(host, parameters.getServerNames());
    return new Wanted(host, port, protocols == null ? List.of() : Arrays.asList(protocols), !tls12, isNamed);
  }

  /**
   * Returns true if the JDK would tell the server its name (SNI).
   *
   * @param names those that the program gives: null if it leaves that to the JDK, empty if it wants none told
   */
  private static boolean isNamed(String host, List<SNIServerName> names) {
    if ("false".equalsIgnoreCase(System.getProperty("jsse.enableSNIExtension"))) {
      return false;
    }
    if (names != null) {
      return !names.isEmpty();
    }
    String name = host.endsWith(".") ? host.substring(0, host.length() - 1) : host;
    return name.indexOf('.') > 0 && isName(name);
  }

  /**
   * Returns the reason why the manager cannot make a connection with these parameters.
   *
   * @param usual the parameters of a program that chooses none
   * @return null if it can
   */
  static String otherwise(String host, SSLParameters parameters, SSLParameters usual) {
    // Zero is the JDK's own size.
    int size = parameters.getMaximumPacketSize();
    // It offers TLS 1.3 with or without TLS 1.2, and the suites of its own choice.
    if (!Arrays.asList(parameters.getProtocols()).contains("TLSv1.3")
        || !Arrays.equals(parameters.getCipherSuites(), usual.getCipherSuites())
        || parameters.getAlgorithmConstraints() != usual.getAlgorithmConstraints()
        || size != 0 && size != usual.getMaximumPacketSize()
        || NEWER.stream().anyMatch(choice -> !Arrays.equals(chosen(parameters, choice), chosen(usual, choice)))) {
      return "the program chooses its own way";
    }
    // The program's and the system's settings must allow any suite that the manager may agree on.
    List<String> suites = Arrays.asList(parameters.getCipherSuites());
    boolean tls12 = Arrays.asList(parameters.getProtocols()).contains("TLSv1.2");
    if (!suites.containsAll(TLS13_SUITES) || tls12 && !suites.containsAll(TLS12_SUITES)) {
      return "not all suites that the manager may agree on are allowed";
    }
    if (!Limits.allow(usual.getAlgorithmConstraints())) {
      return "not all groups and signature schemes that the manager may agree on are allowed";
    }
    // It names the host that is verified.
    List<SNIServerName> names = parameters.getServerNames();
    boolean namesOther = names != null && !names.isEmpty() && !names.equals(List.of(name(host)));
    return namesOther ? "the program names another server" : null;
  }

  /** Writes a line on standard error if {@code REJOIN_DEBUG=1} is set. */
  static void explain(String host, int port, String why) {
    if ("1".equals(System.getenv("REJOIN_DEBUG"))) {
      System.err.println("rejoin: " + host + ":" + port + ": " + why);
    }
  }

  /** Returns the names of a choice; null if there are none, or the JDK has no such choice. */
  private static String[] chosen(SSLParameters parameters, String choice) {
    try {
      return (String[]) SSLParameters.class.getMethod("get" + choice).invoke(parameters);
    } catch (ReflectiveOperationException older) {
      return null;
    }
  }

  /** Returns true if a program may send this host as a server's name: no IPv6 address, and no dot at its end. */
  static boolean isName(String host) {
    return name(host) instanceof SNIHostName;
  }

  private static Object name(String host) {
    try {
      return new SNIHostName(host);
    } catch (IllegalArgumentException address) {
      return host;
    }
  }
}
