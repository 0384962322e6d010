package rejoin;

import java.nio.ByteBuffer;
import java.util.Arrays;

/** Bytes that wait, in order. */
final class Bytes {
  /** The largest array that is kept when it is empty. */
  private static final int SMALL = 4 * 1024;

  private byte[] bytes = new byte[0];
  private int from;
  private int to;

  int size() {
    return to - from;
  }

  boolean isEmpty() {
    return from == to;
  }

  /** Returns the byte at this place, unsigned. */
  int get(int at) {
    return bytes[from + at] & 0xff;
  }

  void add(byte[] more) {
    if (to + more.length > bytes.length) {
      int size = size();
      byte[] room = from >= more.length ? bytes : new byte[size + more.length];
      System.arraycopy(bytes, from, room, 0, size);
      bytes = room;
      from = 0;
      to = size;
    }
    System.arraycopy(more, 0, bytes, to, more.length);
    to += more.length;
  }

  /** Moves as many bytes as there is room for. */
  int moveTo(ByteBuffer room, int most) {
    int count = Math.min(Math.min(most, size()), room.remaining());
    room.put(bytes, from, count);
    from += count;
    if (isEmpty()) {
      clear();
    }
    return count;
  }

  void clear() {
    // They may have been a program's.
    Arrays.fill(bytes, 0, to, (byte) 0);
    bytes = bytes.length > SMALL ? new byte[0] : bytes;
    from = 0;
    to = 0;
  }
}
