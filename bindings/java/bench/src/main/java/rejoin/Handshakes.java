package rejoin;

import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyFactory;
import java.security.KeyStore;
import java.security.PrivateKey;
import java.security.cert.CertificateException;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.Base64;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.SSLEngineResult;
import javax.net.ssl.SSLException;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.TrustManager;
import javax.net.ssl.TrustManagerFactory;
import javax.net.ssl.X509ExtendedTrustManager;
import org.openjdk.jmh.annotations.AuxCounters;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.Param;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.State;

/**
 * A handshake of the JDK's TLS, both engines in one thread with memory between them, as OpenJDK's own SSLHandshake:
 * what each side takes of the thread's CPU time, and sends. {@link HandshakeBench} runs it.
 */
@State(Scope.Thread)
public class Handshakes {
  private static final String HOST = "localhost";
  private static final int PORT = 443;
  /** No handshake takes more. */
  private static final int MOST_TURNS = 16;
  /** Sessions that the client keeps: full handshakes leave one each. */
  private static final int CACHED = 100;
  /** For {@code bench.warm} handshakes. */
  private static final long MOST_WARM_NANOS = 60_000_000_000L;
  private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();

  /** The version. */
  @Param("1.3")
  public String tls;

  /** A folder of certificates. */
  @Param("P-256")
  public String key;

  /** True if the client shows a certificate, too. */
  @Param("false")
  public boolean clientCertificates;

  /** {@code full}; {@code resumed} or {@code ticket}, which differ in what the JVM was told of the server. */
  @Param("full")
  public String mode;

  private SSLContext serverContext;
  private SSLContext clientContext;
  private Verifications verifications;
  private int port = PORT;

  /** The counts of an iteration. */
  @State(Scope.Thread)
  @AuxCounters(AuxCounters.Type.EVENTS)
  public static class Counts {
    /** Those that ended. */
    public long handshakes;
    /** CPU time of the server's side. */
    public long serverNanos;
    /** CPU time of the client's side. */
    public long clientNanos;
    /** Bytes that the server sent. */
    public long serverBytes;
    /** Bytes that the client sent. */
    public long clientBytes;

    /** Made by JMH. */
    public Counts() {}
  }

  /** Made by JMH. */
  public Handshakes() {}

  /** Makes both contexts, and the session that is resumed. */
  @Setup
  public void setUp() throws GeneralSecurityException, IOException {
    Path folder = Path.of(System.getProperty("bench.folder"), key);
    KeyStore authority = KeyStore.getInstance(KeyStore.getDefaultType());
    authority.load(null, null);
    authority.setCertificateEntry("authority", certificates(folder.resolve("authority.pem"))[0]);
    TrustManagerFactory trust = TrustManagerFactory.getInstance("PKIX");
    trust.init(authority);
    verifications = new Verifications((X509ExtendedTrustManager) trust.getTrustManagers()[0]);
    serverContext = context(folder, "server", trust.getTrustManagers());
    clientContext = context(folder, "client", new TrustManager[] {verifications});
    clientContext.getClientSessionContext().setSessionCacheSize(CACHED);
    Counts counts = new Counts();
    connect(counts);
    // By number and not by time: on a machine that others use, too, seconds may be too few for the compilers.
    long began = System.nanoTime();
    while (counts.handshakes < Integer.getInteger("bench.warm") && System.nanoTime() - began < MOST_WARM_NANOS) {
      handshake(counts);
    }
  }

  /** Fails if it was not what its mode says. */
  @Benchmark
  public void handshake(Counts counts) throws GeneralSecurityException, IOException {
    boolean isFull = mode.equals("full");
    if (isFull) {
      // Sessions are known by host and port: of this one there is none.
      port = port % 65_535 + 1;
    }
    int before = verifications.made;
    connect(counts);
    if (isFull != (verifications.made > before)) {
      throw new IllegalStateException("a handshake was not " + mode);
    }
  }

  private void connect(Counts counts) throws SSLException {
    long began = THREADS.getCurrentThreadCpuTime();
    SSLEngine clientEngine = clientContext.createSSLEngine(HOST, port);
    clientEngine.setUseClientMode(true);
    SSLParameters parameters = clientEngine.getSSLParameters();
    parameters.setEndpointIdentificationAlgorithm("HTTPS");
    parameters.setProtocols(new String[] {"TLSv" + tls});
    clientEngine.setSSLParameters(parameters);
    clientEngine.beginHandshake();
    Side client = new Side(clientEngine);
    long middle = THREADS.getCurrentThreadCpuTime();
    SSLEngine serverEngine = serverContext.createSSLEngine();
    serverEngine.setUseClientMode(false);
    serverEngine.setNeedClientAuth(clientCertificates);
    serverEngine.beginHandshake();
    Side server = new Side(serverEngine);
    counts.clientNanos += middle - began;
    counts.serverNanos += THREADS.getCurrentThreadCpuTime() - middle;
    boolean moved = true;
    for (int turn = 0; moved; turn++) {
      if (turn == MOST_TURNS) {
        throw new IllegalStateException("no end of a handshake");
      }
      began = THREADS.getCurrentThreadCpuTime();
      moved = client.advance(server);
      middle = THREADS.getCurrentThreadCpuTime();
      moved |= server.advance(client);
      counts.clientNanos += middle - began;
      counts.serverNanos += THREADS.getCurrentThreadCpuTime() - middle;
    }
    if (!client.isDone() || !server.isDone()) {
      throw new IllegalStateException("no end of a handshake");
    }
    counts.handshakes++;
    counts.clientBytes += client.sent;
    counts.serverBytes += server.sent;
  }

  /** An engine, and what came for it. */
  private static final class Side {
    private static final ByteBuffer NOTHING = ByteBuffer.allocate(0);
    private final SSLEngine engine;
    private final ByteBuffer received;
    private final ByteBuffer plaintext;
    private long sent;

    Side(SSLEngine engine) {
      this.engine = engine;
      // Room for all that the other says in a turn.
      received = ByteBuffer.allocate(4 * engine.getSession().getPacketBufferSize());
      plaintext = ByteBuffer.allocate(engine.getSession().getApplicationBufferSize());
    }

    boolean isDone() {
      return engine.getHandshakeStatus() == SSLEngineResult.HandshakeStatus.NOT_HANDSHAKING && received.position() == 0;
    }

    /** Goes on as far as possible. */
    boolean advance(Side other) throws SSLException {
      boolean moved = false;
      while (true) {
        switch (engine.getHandshakeStatus()) {
          case NEED_TASK -> {
            for (Runnable task = engine.getDelegatedTask(); task != null; task = engine.getDelegatedTask()) {
              task.run();
            }
          }
          case NEED_WRAP -> {
            SSLEngineResult result = engine.wrap(NOTHING, other.received);
            check(result);
            sent += result.bytesProduced();
          }
          default -> {
            if (received.position() == 0 || !read()) {
              return moved;
            }
          }
        }
        moved = true;
      }
    }

    private boolean read() throws SSLException {
      received.flip();
      SSLEngineResult result = engine.unwrap(received, plaintext);
      received.compact();
      if (result.getStatus() == SSLEngineResult.Status.BUFFER_UNDERFLOW) {
        return false;
      }
      check(result);
      return true;
    }

    private static void check(SSLEngineResult result) {
      if (result.getStatus() != SSLEngineResult.Status.OK) {
        throw new IllegalStateException("an engine says " + result);
      }
    }
  }

  private static SSLContext context(Path folder, String whose, TrustManager[] trust)
      throws GeneralSecurityException, IOException {
    X509Certificate[] chain = certificates(folder.resolve(whose + ".pem"));
    String pem = Files.readString(folder.resolve(whose + ".key")).replaceAll("-----[^-]*-----", "");
    PKCS8EncodedKeySpec encoded = new PKCS8EncodedKeySpec(Base64.getMimeDecoder().decode(pem));
    PrivateKey key = KeyFactory.getInstance(chain[0].getPublicKey().getAlgorithm()).generatePrivate(encoded);
    KeyStore keys = KeyStore.getInstance(KeyStore.getDefaultType());
    keys.load(null, null);
    keys.setKeyEntry(whose, key, new char[0], chain);
    KeyManagerFactory managers = KeyManagerFactory.getInstance("PKIX");
    managers.init(keys, new char[0]);
    SSLContext context = SSLContext.getInstance("TLS");
    context.init(managers.getKeyManagers(), trust, null);
    return context;
  }

  private static X509Certificate[] certificates(Path file) throws GeneralSecurityException, IOException {
    try (var pem = Files.newInputStream(file)) {
      return CertificateFactory.getInstance("X.509").generateCertificates(pem).toArray(new X509Certificate[0]);
    }
  }

  /** Counts the server's certificates that were verified: a resumed handshake has none. */
  private static final class Verifications extends X509ExtendedTrustManager {
    private final X509ExtendedTrustManager by;
    private int made;

    Verifications(X509ExtendedTrustManager by) {
      this.by = by;
    }

    @Override
    public void checkServerTrusted(X509Certificate[] chain, String type, SSLEngine engine) throws CertificateException {
      made++;
      by.checkServerTrusted(chain, type, engine);
    }

    @Override
    public void checkServerTrusted(X509Certificate[] chain, String type, Socket socket) throws CertificateException {
      by.checkServerTrusted(chain, type, socket);
    }

    @Override
    public void checkServerTrusted(X509Certificate[] chain, String type) throws CertificateException {
      by.checkServerTrusted(chain, type);
    }

    @Override
    public void checkClientTrusted(X509Certificate[] chain, String type, SSLEngine engine) throws CertificateException {
      by.checkClientTrusted(chain, type, engine);
    }

    @Override
    public void checkClientTrusted(X509Certificate[] chain, String type, Socket socket) throws CertificateException {
      by.checkClientTrusted(chain, type, socket);
    }

    @Override
    public void checkClientTrusted(X509Certificate[] chain, String type) throws CertificateException {
      by.checkClientTrusted(chain, type);
    }

    @Override
    public X509Certificate[] getAcceptedIssuers() {
      return by.getAcceptedIssuers();
    }
  }
}
