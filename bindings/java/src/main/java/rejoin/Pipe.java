package rejoin;

import java.io.Closeable;
import java.io.EOFException;
import java.io.IOException;
import java.net.SocketException;
import java.net.SocketTimeoutException;
import java.nio.ByteBuffer;
import java.nio.channels.ClosedSelectorException;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.SocketChannel;
import java.util.concurrent.TimeUnit;

/**
 * A channel with blocking reads that time out, which Java's Unix sockets lack. One thread may read while another
 * writes. Like sockets of the JDK's, it ignores that its thread is interrupted.
 */
final class Pipe implements Closeable {
  private final SocketChannel channel;
  private final Selector readable;
  /** The selector, made when it is needed: most of the time there is room. */
  private Selector writable;
  private boolean isEnded;

  Pipe(SocketChannel channel) throws IOException {
    this.channel = channel;
    Selector opened = null;
    try {
      channel.configureBlocking(false);
      opened = Selector.open();
      channel.register(opened, SelectionKey.OP_READ);
      readable = opened;
    } catch (IOException error) {
      if (opened != null) {
        opened.close();
      }
      channel.close();
      throw error;
    }
  }

  /** Reads like {@link SocketChannel#read}, but waits; a timeout of zero is for ever. */
  int read(ByteBuffer room, int timeoutMs) throws IOException {
    long until = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(timeoutMs);
    for (int read = channel.read(room); ; read = channel.read(room)) {
      if (read != 0 || !room.hasRemaining()) {
        return read;
      }
      await(readable, timeoutMs == 0 ? 0 : left(until, "Read timed out"));
    }
  }

  /** Reads so many bytes, or more if they are there. */
  void fill(ByteBuffer room, int least, long until) throws IOException {
    int enough = room.position() + least;
    while (room.position() < enough) {
      if (read(room, (int) left(until, "rejoin manager does not answer")) < 0) {
        throw new EOFException("rejoin manager went away");
      }
    }
  }

  /** Writes all of it. */
  void write(ByteBuffer bytes) throws IOException {
    write(bytes, 0);
  }

  /** Writes all of it, before {@code until} if that is not zero. */
  void write(ByteBuffer bytes, long until) throws IOException {
    while (bytes.hasRemaining()) {
      if (channel.write(bytes) == 0) {
        await(writable(), until == 0 ? 0 : left(until, "rejoin manager does not read"));
      }
    }
  }

  void shutdownOutput() throws IOException {
    channel.shutdownOutput();
  }

  /**
   * Closes it for the program, once: the other side is told that this one ends, and may end first.
   *
   * @throws IOException if the other side may see it cut off
   */
  void end() throws IOException {
    synchronized (this) {
      if (isEnded || !channel.isOpen()) {
        return;
      }
      isEnded = true;
    }
    try {
      channel.shutdownOutput();
    } catch (IOException gone) {
      close();
      throw gone;
    }
    closeSelectors();
    Endings.follow(channel);
  }

  @Override
  public void close() throws IOException {
    channel.close();
    closeSelectors();
  }

  /** Wakes up those who wait. */
  private void closeSelectors() throws IOException {
    readable.close();
    synchronized (this) {
      if (writable != null) {
        writable.close();
      }
    }
  }

  private synchronized Selector writable() throws IOException {
    if (writable == null) {
      Selector opened = Selector.open();
      try {
        channel.register(opened, SelectionKey.OP_WRITE);
      } catch (IOException closed) {
        opened.close();
        throw closed;
      }
      writable = opened;
    }
    return writable;
  }

  private static long left(long until, String tooLate) throws SocketTimeoutException {
    long leftMs = TimeUnit.NANOSECONDS.toMillis(until - System.nanoTime());
    if (leftMs <= 0) {
      throw new SocketTimeoutException(tooLate);
    }
    return leftMs;
  }

  private void await(Selector selector, long timeoutMs) throws IOException {
    // A thread that is interrupted would select nothing.
    boolean wasInterrupted = Thread.interrupted();
    try {
      selector.selectedKeys().clear();
      selector.select(timeoutMs);
    } catch (ClosedSelectorException closed) {
      throw new SocketException("Socket closed");
    } finally {
      if (wasInterrupted) {
        Thread.currentThread().interrupt();
      }
    }
  }
}
