package rejoin.netty;

import io.netty.buffer.ByteBufAllocator;
import io.netty.handler.ssl.ClientAuth;
import io.netty.handler.ssl.ReferenceCountedOpenSslEngine;
import io.netty.handler.ssl.SslContext;
import io.netty.handler.ssl.SslContextBuilder;
import io.netty.handler.ssl.SslProvider;
import io.netty.handler.ssl.util.InsecureTrustManagerFactory;
import io.netty.internal.tcnative.SSL;
import io.netty.util.ReferenceCountUtil;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.SSLEngineResult;
import javax.net.ssl.SSLEngineResult.HandshakeStatus;

/** Netty's servers, and the JDK's clients, over memory. */
final class Pairs {
  private static final String WORD = "changeit";

  private Pairs() {}

  static SslContext server(Path folder, ClientAuth clientAuth) throws Exception {
    return builder(folder).clientAuth(clientAuth).sslProvider(SslProvider.OPENSSL).build();
  }

  static SslContextBuilder builder(Path folder) throws Exception {
    Path store = folder.resolve("server.p12");
    if (!Files.exists(store)) {
      Process keytool = new ProcessBuilder(System.getProperty("java.home") + "/bin/keytool", "-genkeypair", "-keyalg", "EC",
          "-alias", "server", "-dname", "CN=localhost", "-keystore", store.toString(), "-storepass", WORD)
          .redirectErrorStream(true).start();
      keytool.getInputStream().readAllBytes();
      if (keytool.waitFor() != 0) {
        throw new IllegalStateException("keytool makes no key");
      }
    }
    KeyStore keys = KeyStore.getInstance("PKCS12");
    try (InputStream stored = Files.newInputStream(store)) {
      keys.load(stored, WORD.toCharArray());
    }
    KeyManagerFactory factory = KeyManagerFactory.getInstance("SunX509");
    factory.init(keys, WORD.toCharArray());
    return SslContextBuilder.forServer(factory);
  }

  /** A client that remembers its sessions. */
  static SSLContext client() throws Exception {
    SSLContext client = SSLContext.getInstance("TLS");
    client.init(null, InsecureTrustManagerFactory.INSTANCE.getTrustManagers(), null);
    return client;
  }

  /** Returns true if a client's connection resumes, as the server says. */
  static boolean resumed(SSLContext from, SslContext to, String protocol) throws Exception {
    SSLEngine client = from.createSSLEngine("localhost", 443);
    client.setUseClientMode(true);
    client.setEnabledProtocols(new String[] {protocol});
    SSLEngine server = to.newEngine(ByteBufAllocator.DEFAULT);
    try {
      ByteBuffer up = ByteBuffer.allocate(64 * 1024);
      ByteBuffer down = ByteBuffer.allocate(64 * 1024);
      ByteBuffer word = ByteBuffer.wrap(WORD.getBytes());
      ByteBuffer heard = ByteBuffer.allocate(64 * 1024);
      // The word comes after the tickets.
      while (heard.position() < WORD.length()) {
        wrap(client, ByteBuffer.allocate(0), up);
        unwrap(up, server, ByteBuffer.allocate(64 * 1024));
        wrap(server, isDone(server) && isDone(client) ? word : ByteBuffer.allocate(0), down);
        unwrap(down, client, heard);
      }
      boolean resumed = SSL.isSessionReused(((ReferenceCountedOpenSslEngine) server).sslPointer());
      client.closeOutbound();
      wrap(client, ByteBuffer.allocate(0), up);
      unwrap(up, server, heard);
      return resumed;
    } finally {
      ReferenceCountUtil.release(server);
    }
  }

  private static boolean isDone(SSLEngine engine) {
    return engine.getHandshakeStatus() == HandshakeStatus.NOT_HANDSHAKING && !"NONE".equals(engine.getSession().getProtocol());
  }

  private static void wrap(SSLEngine engine, ByteBuffer plain, ByteBuffer records) throws Exception {
    SSLEngineResult done;
    do {
      done = engine.wrap(plain, records);
      tasks(engine);
    } while (done.bytesProduced() > 0 && engine.getHandshakeStatus() == HandshakeStatus.NEED_WRAP);
  }

  private static void unwrap(ByteBuffer records, SSLEngine engine, ByteBuffer plain) throws Exception {
    records.flip();
    SSLEngineResult done;
    do {
      done = engine.unwrap(records, plain);
      tasks(engine);
    } while (records.hasRemaining() && (done.bytesConsumed() > 0 || engine.getHandshakeStatus() == HandshakeStatus.NEED_UNWRAP));
    records.compact();
  }

  private static void tasks(SSLEngine engine) {
    for (Runnable task = engine.getDelegatedTask(); task != null; task = engine.getDelegatedTask()) {
      task.run();
    }
  }
}
