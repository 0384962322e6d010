package rejoin;

import java.security.Principal;
import java.security.cert.Certificate;
import java.security.cert.X509Certificate;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import javax.net.ssl.SSLPeerUnverifiedException;
import javax.net.ssl.SSLSession;
import javax.net.ssl.SSLSessionContext;

/** The manager's facts about a connection. It holds no secret, and nothing to resume. */
final class ManagedSession implements SSLSession {
  /** The session of a connection that was never established (JSSE's own name for it). */
  static final ManagedSession NONE =
      new ManagedSession("", -1, "NONE", "SSL_NULL_WITH_NULL_NULL", "", false, new X509Certificate[0]);

  /** The longest record, by JSSE's own measure. */
  static final int RECORD_BYTES = 16_709;

  private final String host;
  private final int port;
  private final String version;
  private final String cipher;
  private final boolean resumed;
  private final X509Certificate[] chain;
  private final long created = System.currentTimeMillis();
  private final Map<String, Object> values = new ConcurrentHashMap<>();
  /** The protocol that ALPN chose; empty if none. */
  final String protocol;

  private ManagedSession(
      String host, int port, String version, String cipher, String protocol, boolean resumed, X509Certificate[] chain) {
    this.host = host;
    this.port = port;
    this.version = version;
    this.cipher = cipher;
    this.protocol = protocol;
    this.resumed = resumed;
    this.chain = chain;
  }

  static ManagedSession of(String host, int port, Map<?, ?> facts, X509Certificate[] chain) {
    // The manager names suites as rustls does, JSSE as IANA does.
    String cipher = Json.of(facts, "cipher", String.class).replaceFirst("^TLS13_", "TLS_");
    String protocol = facts.get("alpn") instanceof String chosen ? chosen : "";
    boolean resumed = Boolean.TRUE.equals(facts.get("resumed"));
    String version = Json.of(facts, "version", String.class);
    return new ManagedSession(host, port, version, cipher, protocol, resumed, chain);
  }

  /** Returns true if the manager resumed a session. */
  boolean isResumed() {
    return resumed;
  }

  X509Certificate[] chain() {
    return chain.clone();
  }

  @Override
  public byte[] getId() {
    return new byte[0];
  }

  @Override
  public SSLSessionContext getSessionContext() {
    return null;
  }

  @Override
  public long getCreationTime() {
    return created;
  }

  @Override
  public long getLastAccessedTime() {
    return created;
  }

  @Override
  public void invalidate() {}

  @Override
  public boolean isValid() {
    return false;
  }

  @Override
  public void putValue(String name, Object value) {
    values.put(name, value);
  }

  @Override
  public Object getValue(String name) {
    return values.get(name);
  }

  @Override
  public void removeValue(String name) {
    values.remove(name);
  }

  @Override
  public String[] getValueNames() {
    return values.keySet().toArray(new String[0]);
  }

  @Override
  public Certificate[] getPeerCertificates() throws SSLPeerUnverifiedException {
    if (chain.length == 0) {
      throw new SSLPeerUnverifiedException("peer not authenticated");
    }
    return chain.clone();
  }

  @Override
  public Certificate[] getLocalCertificates() {
    return null;
  }

  @Override
  public Principal getPeerPrincipal() throws SSLPeerUnverifiedException {
    return ((X509Certificate) getPeerCertificates()[0]).getSubjectX500Principal();
  }

  @Override
  public Principal getLocalPrincipal() {
    return null;
  }

  @Override
  public String getCipherSuite() {
    return cipher;
  }

  @Override
  public String getProtocol() {
    return version;
  }

  @Override
  public String getPeerHost() {
    return host;
  }

  @Override
  public int getPeerPort() {
    return port;
  }

  /** Returns the size of two records, so that an engine sends more in a turn with the manager. */
  @Override
  public int getPacketBufferSize() {
    return 2 * RECORD_BYTES;
  }

  @Override
  public int getApplicationBufferSize() {
    return 16_384;
  }
}
