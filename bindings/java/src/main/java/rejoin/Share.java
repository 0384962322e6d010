package rejoin;

import java.io.EOFException;
import java.io.IOException;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;
import java.util.Map;

/** A connection to {@code rejoin share} for ticket keys, by the protocol of {@code docs/share-protocol.md}. */
final class Share implements AutoCloseable {
  private static final int ANSWER_BYTES = 256 * 1024;
  private static final int CONTEXT_BYTES = 255;
  private static final int KEYS = 16;
  private static final int LONGEST_LIFETIME_S = 604_800;

  private final Pipe pipe;

  /** A list of keys: the first encrypts. */
  record Keys(List<TicketKeys.Key> keys, int ticketLifetimeS) {}

  private Share(Pipe pipe) {
    this.pipe = pipe;
  }

  /** @throws IllegalArgumentException if a context has no name, or one that is too long */
  static void checkContext(String context) {
    int bytes = context.getBytes(StandardCharsets.UTF_8).length;
    if (bytes < 1 || bytes > CONTEXT_BYTES) {
      throw new IllegalArgumentException("a context has 1 to " + CONTEXT_BYTES + " bytes, and not " + bytes);
    }
  }

  /**
   * Connects.
   *
   * @param user whom this program believes besides itself and root, or null
   * @throws IOException if nobody listens, or somebody whom this program does not believe
   */
  static Share connect(Path socket, String user) throws IOException {
    SocketChannel channel = SocketChannel.open(StandardProtocolFamily.UNIX);
    try {
      channel.configureBlocking(false);
      if (!channel.connect(UnixDomainSocketAddress.of(socket))) {
        throw new IOException("rejoin share has no room");
      }
      Believed.checkPeer(channel, socket, user == null ? null : Believed.user(user));
    } catch (IOException | RuntimeException error) {
      channel.close();
      throw error;
    }
    return new Share(new Pipe(channel));
  }

  /** Asks for the keys of a context: lists follow. */
  void ask(String context) throws IOException {
    byte[] wish = ("{\"rejoin\":1,\"keys\":{\"context\":" + Json.quoted(context) + ",\"form\":\"raw48\"}}")
        .getBytes(StandardCharsets.UTF_8);
    pipe.write(ByteBuffer.allocate(4 + wish.length).putInt(wish.length).put(wish).flip());
  }

  /**
   * Waits for the next list, however long that takes.
   *
   * @throws IOException if there will be none on this connection, with the share's reason if it has one
   */
  Keys next() throws IOException {
    int bytes = exactly(4).getInt();
    if (bytes < 0 || bytes > ANSWER_BYTES) {
      throw new IOException("the answer is longer than those of rejoin share");
    }
    byte[] message = exactly(bytes).array();
    try {
      return keys((Map<?, ?>) Json.read(new String(message, StandardCharsets.UTF_8)));
    } catch (ClassCastException | IllegalArgumentException wrong) {
      // The cause may quote what was said.
      throw new IOException("rejoin share answered something else");
    } finally {
      Arrays.fill(message, (byte) 0);
    }
  }

  private static Keys keys(Map<?, ?> said) throws IOException {
    if (!Double.valueOf(1).equals(said.get("rejoin"))) {
      throw new IOException("rejoin share is of another version");
    }
    if (said.get("error") instanceof Map<?, ?> error) {
      throw new IOException("rejoin share: " + error.get("kind") + ": " + error.get("message"));
    }
    List<TicketKeys.Key> keys = new ArrayList<>();
    for (Object each : Json.of(said, "keys", List.class)) {
      Map<?, ?> key = (Map<?, ?>) each;
      if ("encrypting".equals(key.get("state")) != keys.isEmpty()) {
        throw new IllegalArgumentException("the first key encrypts, and no other");
      }
      keys.add(TicketKeys.Key.of(Base64.getDecoder().decode(Json.of(key, "key", String.class))));
    }
    double lifetime = Json.of(said, "ticket_lifetime_s", Double.class);
    if (keys.isEmpty() || keys.size() > KEYS || !(lifetime >= 1 && lifetime <= LONGEST_LIFETIME_S)) {
      throw new IllegalArgumentException("out of bounds");
    }
    return new Keys(List.copyOf(keys), (int) lifetime);
  }

  private ByteBuffer exactly(int bytes) throws IOException {
    ByteBuffer room = ByteBuffer.allocate(bytes);
    while (room.hasRemaining()) {
      if (pipe.read(room, 0) < 0) {
        throw new EOFException("rejoin share went away");
      }
    }
    return room.flip();
  }

  @Override
  public void close() throws IOException {
    pipe.close();
  }
}
