package rejoin;

import java.io.Closeable;
import java.io.IOException;
import java.net.SocketTimeoutException;
import java.nio.ByteBuffer;
import java.security.cert.X509Certificate;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * A connection whose TLS the manager does, and whose records the program carries: turns of a frame to the manager and
 * all that it answers, as {@code docs/manager-protocol.md} says. One thread at a time.
 */
final class Records implements Closeable {
  /** The largest body of a frame. */
  static final int MOST_BYTES = 64 * 1024;
  static final ByteBuffer NOTHING = ByteBuffer.allocate(0).asReadOnlyBuffer();
  /** Connections at a time in this process: an engine that is abandoned keeps its connection until it is collected. */
  private static final int MOST_OPEN = 512;
  private static final int HEAD_BYTES = 4;
  /** The longest wait for a turn: the manager answers at once, because it waits for nobody. */
  private static final int TURN_MS = 10_000;
  private static final AtomicInteger OPEN = new AtomicInteger();

  private final Pipe pipe;
  /** The certificates that the manager does not send. */
  private final Map<String, X509Certificate> known;
  private final ByteBuffer read = ByteBuffer.allocate(16 * 1024 + 512).limit(0);
  private boolean isClosed;

  /** A frame of the manager's answer; {@code message} is null unless it is one. */
  record Frame(char kind, byte[] body, Map<?, ?> message) {}

  /** @throws IOException if there are too many */
  Records(Pipe pipe, Map<String, X509Certificate> known) throws IOException {
    this.pipe = pipe;
    this.known = known;
    if (OPEN.incrementAndGet() > MOST_OPEN) {
      OPEN.decrementAndGet();
      throw new IOException("too many engines at a time");
    }
  }

  Map<String, X509Certificate> known() {
    return known;
  }

  /** Sends one frame, and returns all frames of the answer. */
  List<Frame> turn(char kind, ByteBuffer body) throws IOException {
    long until = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(TURN_MS);
    ByteBuffer frame = ByteBuffer.allocate(HEAD_BYTES + body.remaining());
    frame.putInt(kind << 24 | body.remaining()).put(body).flip();
    List<Frame> answer = new ArrayList<>();
    try {
      pipe.write(frame, until);
      for (Frame next = next(until); next.kind != '.'; next = next(until)) {
        answer.add(next);
        if (next.kind == 'j' && Manager.problem(next.message) != null) {
          // After it the manager closes.
          break;
        }
      }
    } catch (SocketTimeoutException silent) {
      Manager.leaveAlone();
      throw silent;
    }
    return answer;
  }

  @Override
  public void close() {
    synchronized (pipe) {
      if (isClosed) {
        return;
      }
      isClosed = true;
    }
    OPEN.decrementAndGet();
    try {
      pipe.close();
    } catch (IOException gone) {
      // As wanted.
    }
  }

  private Frame next(long until) throws IOException {
    if (read.remaining() < HEAD_BYTES) {
      int lacks = HEAD_BYTES - read.remaining();
      pipe.fill(read.compact(), lacks, until);
      read.flip();
    }
    int head = read.getInt();
    int length = head & 0xff_ffff;
    char kind = (char) (head >>> 24);
    if (length > (kind == 'j' ? Manager.ANSWER_BYTES : MOST_BYTES)) {
      throw new IOException("rejoin manager says more than may be said at once");
    }
    byte[] body = new byte[length];
    int here = Math.min(length, read.remaining());
    read.get(body, 0, here);
    pipe.fill(ByteBuffer.wrap(body, here, length - here), length - here, until);
    return new Frame(kind, body, kind == 'j' ? Manager.message(body) : null);
  }
}
