package rejoin.netty;

import java.io.IOException;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Base64;
import java.util.List;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

/** What `rejoin share` says, and what it never would. */
final class FakeShare implements AutoCloseable {
  final Path socket;
  /** The requests, in order. */
  final BlockingQueue<String> asked = new ArrayBlockingQueue<>(64);
  private final List<SocketChannel> clients = new CopyOnWriteArrayList<>();
  private final ServerSocketChannel listener;
  private volatile String answer;

  FakeShare(Path socket, String answer) throws IOException {
    this.socket = socket;
    this.answer = answer;
    listener = ServerSocketChannel.open(StandardProtocolFamily.UNIX);
    listener.bind(UnixDomainSocketAddress.of(socket));
    Thread thread = new Thread(this::serve, "share");
    thread.setDaemon(true);
    thread.start();
  }

  /** A list of keys that are made of these numbers: the first encrypts. */
  static String keys(int... numbers) {
    String keys = IntStream.range(0, numbers.length)
        .mapToObj(at -> "{\"key\":\"" + key(numbers[at], 48) + "\",\"state\":\"" + (at == 0 ? "encrypting" : "opening") + "\"}")
        .collect(Collectors.joining(","));
    return "{\"rejoin\":1,\"keys\":[" + keys + "],\"ticket_lifetime_s\":3600,\"something\":{\"new\":[true]}}";
  }

  static String key(int number, int bytes) {
    return Base64.getEncoder().encodeToString(ByteBuffer.allocate(bytes).put((byte) number).array());
  }

  /** Says this to all who are there, and to all who come. */
  void say(String answer) throws IOException {
    this.answer = answer;
    for (SocketChannel client : clients) {
      send(client, answer);
    }
  }

  private void serve() {
    try {
      while (true) {
        SocketChannel client = listener.accept();
        asked.add(request(client));
        clients.add(client);
        try {
          send(client, answer);
        } catch (IOException heardEnough) {
          client.close();
        }
      }
    } catch (IOException closed) {
      return;
    }
  }

  private static String request(SocketChannel client) throws IOException {
    ByteBuffer bytes = filled(client, filled(client, 4).getInt());
    return StandardCharsets.UTF_8.decode(bytes).toString();
  }

  private static ByteBuffer filled(SocketChannel client, int bytes) throws IOException {
    ByteBuffer room = ByteBuffer.allocate(bytes);
    while (room.hasRemaining() && client.read(room) >= 0) {
      continue;
    }
    return room.flip();
  }

  private static void send(SocketChannel client, String answer) throws IOException {
    byte[] message = answer.getBytes(StandardCharsets.UTF_8);
    // In two parts: a message may come in any.
    client.write(ByteBuffer.allocate(4).putInt(message.length).flip());
    client.write(ByteBuffer.wrap(message));
  }

  @Override
  public void close() throws IOException {
    listener.close();
    for (SocketChannel client : clients) {
      client.close();
    }
    Files.deleteIfExists(socket);
  }
}
