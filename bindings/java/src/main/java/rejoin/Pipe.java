package rejoin;

import java.io.Closeable;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.net.SocketException;
import java.net.SocketTimeoutException;
import java.nio.ByteBuffer;
import java.nio.channels.ClosedSelectorException;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.SocketChannel;

/**
 * A channel that is waited for: reading with a timeout, which Unix sockets have not in Java. One thread may read while
 * another writes.
 */
final class Pipe implements Closeable {
  private final SocketChannel channel;
  private final Selector readable;
  private final Selector writable;

  Pipe(SocketChannel channel) throws IOException {
    this.channel = channel;
    Selector first = null;
    try {
      channel.configureBlocking(false);
      first = Selector.open();
      writable = Selector.open();
      readable = first;
      channel.register(readable, SelectionKey.OP_READ);
      channel.register(writable, SelectionKey.OP_WRITE);
    } catch (IOException error) {
      if (first != null) {
        first.close();
      }
      channel.close();
      throw error;
    }
  }

  /** As {@link SocketChannel#read}, but waits: zero is for ever. */
  int read(ByteBuffer room, int timeoutMs) throws IOException {
    for (int read = channel.read(room); ; read = channel.read(room)) {
      if (read != 0 || !room.hasRemaining()) {
        return read;
      }
      if (ready(readable, timeoutMs) == 0 && timeoutMs > 0 && channel.isOpen()) {
        throw new SocketTimeoutException("Read timed out");
      }
    }
  }

  /** Writes all of it. */
  void write(ByteBuffer bytes) throws IOException {
    while (bytes.hasRemaining()) {
      if (channel.write(bytes) == 0) {
        ready(writable, 0);
      }
    }
  }

  void shutdownOutput() throws IOException {
    channel.shutdownOutput();
  }

  boolean isOpen() {
    return channel.isOpen();
  }

  @Override
  public void close() throws IOException {
    channel.close();
    readable.close();
    writable.close();
  }

  private static int ready(Selector selector, int timeoutMs) throws IOException {
    try {
      selector.selectedKeys().clear();
      int ready = selector.select(timeoutMs);
      if (Thread.currentThread().isInterrupted()) {
        throw new InterruptedIOException("interrupted");
      }
      return ready;
    } catch (ClosedSelectorException closed) {
      throw new SocketException("Socket closed");
    }
  }
}
