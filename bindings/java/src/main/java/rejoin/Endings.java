package rejoin;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.SocketChannel;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * Connections that the program has closed. The manager tells a server of a clean end only if it sees that direction shut
 * before the socket is gone. So they stay until the server has ended, too, in one thread for all: five seconds at most, and
 * not while a server goes on to send.
 */
final class Endings {
  /** Connections at a time; others are closed at once. Each has a descriptor, of which a program may have few. */
  private static final int MOST = 256;
  /** The most that a server may send to a program that has left. */
  private static final int MOST_BYTES = 256 * 1024;
  private static final long LONGEST_NS = TimeUnit.SECONDS.toNanos(5);
  /** The longest that the end of the program waits for them. The manager needs no more than its turn. */
  private static final long EXIT_NS = TimeUnit.SECONDS.toNanos(1);
  private static final int LOOK_MS = 100;

  /** Begun by the first connection. */
  private static Endings ofThisProcess;

  private final Selector selector = Selector.open();
  private final Queue<SocketChannel> fresh = new ConcurrentLinkedQueue<>();
  private final AtomicInteger open = new AtomicInteger();
  private final ByteBuffer unread = ByteBuffer.allocate(16 * 1024);

  /** The bounds of a connection. */
  private static final class Bounds {
    final long until = System.nanoTime() + LONGEST_NS;
    int bytes;
  }

  private Endings() throws IOException {}

  /**
   * Reads a connection whose output is shut to its end, and closes it.
   *
   * @throws IOException if that cannot be awaited: it was closed at once, and the server may see it cut off
   */
  static void follow(SocketChannel channel) throws IOException {
    try {
      if (channel.read(ByteBuffer.allocate(1)) < 0) {
        channel.close();
      } else {
        add(channel);
      }
    } catch (IOException | RuntimeException | OutOfMemoryError error) {
      channel.close();
      throw error instanceof IOException told ? told : new IOException(error);
    }
  }

  private static synchronized void add(SocketChannel channel) throws IOException {
    if (ofThisProcess == null) {
      ofThisProcess = begun();
    }
    if (ofThisProcess.open.incrementAndGet() > MOST) {
      ofThisProcess.open.decrementAndGet();
      throw new IOException("too many connections end at a time");
    }
    ofThisProcess.fresh.add(channel);
    ofThisProcess.selector.wakeup();
  }

  private static Endings begun() throws IOException {
    Endings begun = new Endings();
    try {
      Runtime.getRuntime().addShutdownHook(thread(begun::awaitAll));
      thread(begun::run).start();
      return begun;
    } catch (IllegalStateException | OutOfMemoryError none) {
      // The program ends right now, or it has no thread.
      begun.selector.close();
      throw none;
    }
  }

  private static Thread thread(Runnable run) {
    Thread thread = new Thread(run, "rejoin endings");
    thread.setDaemon(true);
    // It outlives the application that came first.
    thread.setContextClassLoader(null);
    return thread;
  }

  private void run() {
    while (true) {
      try {
        selector.select(open.get() == 0 ? 0 : LOOK_MS);
        // Who interrupts all threads of a group means others; interrupted, it would never wait again.
        Thread.interrupted();
      } catch (IOException broken) {
        endAll();
        return;
      }
      for (SocketChannel next = fresh.poll(); next != null; next = fresh.poll()) {
        try {
          next.register(selector, SelectionKey.OP_READ, new Bounds());
        } catch (IOException closed) {
          end(next);
        }
      }
      selector.selectedKeys().clear();
      selector.keys().stream().filter(SelectionKey::isValid).filter(this::isOver).forEach(this::end);
    }
  }

  private boolean isOver(SelectionKey key) {
    Bounds bounds = (Bounds) key.attachment();
    try {
      int read = ((SocketChannel) key.channel()).read(unread.clear());
      bounds.bytes += read;
      return read < 0 || bounds.bytes > MOST_BYTES || System.nanoTime() - bounds.until > 0;
    } catch (IOException broken) {
      return true;
    }
  }

  private void end(SelectionKey key) {
    end((SocketChannel) key.channel());
  }

  /** Ends a connection; its descriptor is free with the next select. */
  private void end(SocketChannel channel) {
    try {
      channel.close();
    } catch (IOException gone) {
      // As wanted.
    }
    synchronized (this) {
      open.decrementAndGet();
      notifyAll();
    }
  }

  /** Gives up; the next connection begins anew. */
  private void endAll() {
    synchronized (Endings.class) {
      ofThisProcess = null;
    }
    selector.keys().stream().filter(SelectionKey::isValid).forEach(this::end);
    fresh.forEach(this::end);
    try {
      selector.close();
    } catch (IOException gone) {
      // As wanted.
    }
  }

  /** Waits until there are none. */
  private synchronized void awaitAll() {
    long until = System.nanoTime() + EXIT_NS;
    try {
      for (long left = EXIT_NS; open.get() > 0 && left > 0; left = until - System.nanoTime()) {
        TimeUnit.NANOSECONDS.timedWait(this, left);
      }
    } catch (InterruptedException hurried) {
      // The program ends at once.
    }
  }
}
