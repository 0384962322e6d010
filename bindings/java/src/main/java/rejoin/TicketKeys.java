package rejoin;

import java.io.IOException;
import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/**
 * The ticket keys of this machine's ring, for a TLS server that takes keys of 48 bytes, such as Netty with
 * netty-tcnative. A thread follows them through {@code rejoin share}, through rotations and restarts of the share, until
 * this is closed. Where there is no share, the server keeps what it has.
 *
 * <p>All methods may be called by any thread.
 */
public final class TicketKeys implements AutoCloseable {
  /** The socket at which {@code rejoin share} listens unless it is told otherwise. */
  public static final Path SOCKET = Path.of("/run/rejoin/share.sock");

  private static final Logger LOGGER = System.getLogger("rejoin");
  private static final int LONGEST_PAUSE_S = 60;

  private final String context;
  private final Path socket;
  private final String user;
  private final Server server;
  private final CountDownLatch closed = new CountDownLatch(1);
  private final Thread thread;
  /** The connection that is open now, or null. */
  private Share share;
  /** The last problem that was logged: each is told once, until it is over. */
  private String told;

  /** A server that takes keys. One thread calls it, one list after the other. */
  @FunctionalInterface
  public interface Server {
    /**
     * Replaces the server's keys. The keys are wiped when this returns.
     *
     * @param keys 1 to 16: the first encrypts new tickets, all of them decrypt
     * @param ticketLifetimeS the longest lifetime that a ticket may get, in seconds: 1 to 604,800
     */
    void use(List<Key> keys, int ticketLifetimeS);
  }

  /**
   * A key for tickets that are encrypted by AES-128 and authenticated by HMAC-SHA-256.
   *
   * @param name 16 bytes, which each ticket shows
   * @param hmacKey 16 bytes
   * @param aesKey 16 bytes
   */
  public record Key(byte[] name, byte[] hmacKey, byte[] aesKey) {
    private static final int PART_BYTES = 16;

    static Key of(byte[] raw48) {
      if (raw48.length != 3 * PART_BYTES) {
        throw new IllegalArgumentException("a key has 48 bytes");
      }
      byte[] hmacKey = Arrays.copyOfRange(raw48, PART_BYTES, 2 * PART_BYTES);
      Key key = new Key(Arrays.copyOf(raw48, PART_BYTES), hmacKey, Arrays.copyOfRange(raw48, 2 * PART_BYTES, raw48.length));
      Arrays.fill(raw48, (byte) 0);
      return key;
    }

    private void wipe() {
      Arrays.fill(hmacKey, (byte) 0);
      Arrays.fill(aesKey, (byte) 0);
    }

    /** Shows nothing of the key. */
    @Override
    public String toString() {
      return "Key[redacted]";
    }
  }

  private TicketKeys(String context, Path socket, String user, Server server) {
    this.context = context;
    this.socket = socket;
    this.user = user;
    this.server = server;
    thread = new Thread(this::run, "rejoin ticket keys " + context);
    thread.setDaemon(true);
  }

  /**
   * Follows the keys of a context through the share at {@link #SOCKET}.
   *
   * @param context 1 to 255 bytes: servers that open each other's tickets have the same
   * @param server gets each list
   * @return what ends it
   */
  public static TicketKeys follow(String context, Server server) {
    return follow(context, SOCKET, null, server);
  }

  /**
   * Follows the keys of a context.
   *
   * @param context 1 to 255 bytes: servers that open each other's tickets have the same
   * @param socket the share's
   * @param user whom this program believes at that socket besides its own user and root, or null
   * @param server gets each list
   * @return what ends it
   */
  public static TicketKeys follow(String context, Path socket, String user, Server server) {
    Share.checkContext(context);
    TicketKeys followed = new TicketKeys(context, socket, user, server);
    followed.thread.start();
    return followed;
  }

  /** Ends it: the server keeps the keys that it has, and gets no others after this returns, unless it calls this itself. */
  @Override
  public void close() {
    closed.countDown();
    synchronized (this) {
      end(share);
    }
    boolean wasInterrupted = false;
    while (thread != Thread.currentThread() && thread.isAlive()) {
      try {
        thread.join();
      } catch (InterruptedException interrupted) {
        wasInterrupted = true;
      }
    }
    if (wasInterrupted) {
      Thread.currentThread().interrupt();
    }
  }

  private void run() {
    for (int pauseS = 1; !isClosed(); pauseS = Math.min(2 * pauseS, LONGEST_PAUSE_S)) {
      boolean hadKeys = false;
      try (Share open = open()) {
        open.ask(context);
        while (!isClosed()) {
          use(open.next());
          hadKeys = true;
        }
      } catch (IOException | RuntimeException problem) {
        warn(problem);
      }
      pauseS = hadKeys ? 1 : pauseS;
      pause(pauseS);
    }
  }

  private Share open() throws IOException {
    Share open = Share.connect(socket, user);
    synchronized (this) {
      share = open;
    }
    return open;
  }

  private void use(Share.Keys list) {
    try {
      if (!isClosed()) {
        server.use(list.keys(), list.ticketLifetimeS());
        LOGGER.log(told == null ? Level.DEBUG : Level.INFO, "{0} has {1} ticket keys", context, list.keys().size());
        told = null;
      }
    } finally {
      list.keys().forEach(Key::wipe);
    }
  }

  private void warn(Exception problem) {
    String text = String.valueOf(problem.getMessage());
    if (!isClosed() && !text.equals(told)) {
      LOGGER.log(Level.WARNING, "no new ticket keys for {0} from {1}: {2}; the server goes on with those that it has",
          context, socket, problem);
      told = text;
    }
  }

  private boolean isClosed() {
    return closed.getCount() == 0;
  }

  private void pause(int seconds) {
    try {
      closed.await(seconds, TimeUnit.SECONDS);
    } catch (InterruptedException nobodyInterruptsIt) {
      warn(nobodyInterruptsIt);
    }
  }

  private static void end(Share open) {
    try {
      if (open != null) {
        open.close();
      }
    } catch (IOException closedAnyway) {
      LOGGER.log(Level.DEBUG, "a connection to rejoin share did not close well", closedAnyway);
    }
  }
}
