package rejoin.netty;

import io.netty.buffer.ByteBufAllocator;
import io.netty.handler.ssl.OpenSslServerSessionContext;
import io.netty.handler.ssl.OpenSslSessionContext;
import io.netty.handler.ssl.OpenSslSessionTicketKey;
import io.netty.handler.ssl.SslContext;
import io.netty.util.ReferenceCountUtil;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.List;
import javax.net.ssl.SSLEngine;
import rejoin.TicketKeys;

/**
 * Session tickets that Netty servers with netty-tcnative share, with other JVMs and other machines, through restarts:
 * their keys come from {@code rejoin share}. Until the first keys come, and where there is no share, a server works as
 * without.
 *
 * <p>A ticket resumes until its key leaves the ring, whatever it tells its client. Over TLS 1.2 that is the server's {@code
 * SslContextBuilder.sessionTimeout}, or the ring's lifetime if that is shorter. If none was set, it is the four hours of
 * tcnative, which Netty does not show, and over TLS 1.3 BoringSSL's two days, for which tcnative has no setter.
 */
public final class SharedTickets implements AutoCloseable {
  private final SslContext server;
  private final TicketKeys keys;
  private boolean isClosed;

  private SharedTickets(SslContext server, String context, Path socket, String user) {
    OpenSslSessionContext sessions = (OpenSslSessionContext) server.sessionContext();
    keys = TicketKeys.follow(context, socket, user, (list, lifetimeS) -> use(sessions, list, lifetimeS));
    // Its keys are set in memory that would be freed with it.
    this.server = ReferenceCountUtil.retain(server);
  }

  /**
   * Lets a server share its tickets, through the share at {@link TicketKeys#SOCKET}.
   *
   * @param server of {@code SslProvider.OPENSSL} or {@code OPENSSL_REFCNT}
   * @param context 1 to 255 bytes: servers of one name resume each other's sessions, so that they serve the same hosts
   * @return what ends it, before the server's own context is released
   * @throws IllegalArgumentException if it is no such server, or asks for client certificates: a session that one server
   *     resumes was checked by another, so that only {@link #checkedAlike} shares theirs
   */
  public static SharedTickets follow(SslContext server, String context) {
    return follow(server, context, TicketKeys.SOCKET, null);
  }

  /**
   * Lets a server share its tickets. The server's session-id context becomes one of this name, because Netty's may be
   * random in each process.
   *
   * @param server of {@code SslProvider.OPENSSL} or {@code OPENSSL_REFCNT}, whose engines do not ask for client
   *     certificates by their own settings
   * @param context 1 to 255 bytes: servers of one name resume each other's sessions, so that they serve the same hosts
   * @param socket the share's
   * @param user whom this program believes at that socket besides its own user and root, or null
   * @return what ends it, before the server's own context is released
   * @throws IllegalArgumentException as above
   */
  public static SharedTickets follow(SslContext server, String context, Path socket, String user) {
    checkTakesKeys(server);
    SSLEngine engine = server.newEngine(ByteBufAllocator.DEFAULT);
    try {
      if (engine.getNeedClientAuth() || engine.getWantClientAuth()) {
        throw new IllegalArgumentException("this server asks for client certificates: a session that it resumes may have "
            + "been checked by another server; call checkedAlike if all servers of " + context + " check them alike");
      }
    } finally {
      ReferenceCountUtil.release(engine);
    }
    SharedTickets shared = new SharedTickets(server, context, socket, user);
    ((OpenSslServerSessionContext) server.sessionContext()).setSessionIdContext(named(context));
    return shared;
  }

  /**
   * Lets a server that asks for client certificates share its tickets. The caller vouches that all servers of that name
   * trust the same authorities and check certificates alike: a client whose session one of them resumes was checked by
   * the server that made it, and is not checked again.
   *
   * <p>The session-id context stays the server's. Netty 4.2.20 makes it of the certificates and authorities of a server
   * that is built from them, and so has seen that they are alike. For a server that is built from a factory of key or trust
   * managers, it is random, and nothing is shared, unless the caller sets the same {@code
   * OpenSslServerSessionContext.setSessionIdContext} on all servers.
   *
   * @param server of {@code SslProvider.OPENSSL} or {@code OPENSSL_REFCNT}
   * @param context 1 to 255 bytes
   * @param socket the share's
   * @param user whom this program believes at that socket besides its own user and root, or null
   * @return what ends it, before the server's own context is released
   * @throws IllegalArgumentException if it is no such server
   */
  public static SharedTickets checkedAlike(SslContext server, String context, Path socket, String user) {
    checkTakesKeys(server);
    return new SharedTickets(server, context, socket, user);
  }

  private static void checkTakesKeys(SslContext server) {
    if (!server.isServer() || !(server.sessionContext() instanceof OpenSslSessionContext)) {
      throw new IllegalArgumentException("only servers of SslProvider.OPENSSL or OPENSSL_REFCNT take ticket keys");
    }
  }

  private static byte[] named(String context) {
    try {
      return MessageDigest.getInstance("SHA-256").digest(("rejoin " + context).getBytes(StandardCharsets.UTF_8));
    } catch (NoSuchAlgorithmException everyJdkHasIt) {
      throw new IllegalStateException(everyJdkHasIt);
    }
  }

  private static void use(OpenSslSessionContext sessions, List<TicketKeys.Key> list, int lifetimeS) {
    int own = sessions.getSessionTimeout();
    if (own == 0 || own > lifetimeS) {
      sessions.setSessionTimeout(lifetimeS);
    }
    sessions.setTicketKeys(list.stream().map(SharedTickets::key).toArray(OpenSslSessionTicketKey[]::new));
  }

  private static OpenSslSessionTicketKey key(TicketKeys.Key key) {
    return new OpenSslSessionTicketKey(key.name(), key.hmacKey(), key.aesKey());
  }

  /** Ends it: the server keeps the keys that it has, and gets no others. */
  @Override
  public synchronized void close() {
    if (!isClosed) {
      isClosed = true;
      keys.close();
      ReferenceCountUtil.release(server);
    }
  }
}
