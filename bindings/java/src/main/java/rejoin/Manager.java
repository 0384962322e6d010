package rejoin;

import java.io.Closeable;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.SocketTimeoutException;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.security.cert.CertificateException;
import java.security.cert.X509Certificate;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import java.util.stream.Collectors;

/** A client of the manager, by the protocol of {@code docs/manager-protocol.md}. */
final class Manager {
  private static final Path SYSTEM_SOCKET = Path.of("/run/rejoin/manager.sock");
  private static final int REQUEST_BYTES = 256 * 1024;
  static final int ANSWER_BYTES = 1024 * 1024;
  /** The handshake's deadline if the program sets none, and the wait for an answer past it. */
  private static final int DEADLINE_MS = 10_000;
  private static final int PATIENCE_MS = 3_000;
  /** The wait for an answer about records: the manager may first connect by itself, for up to 3.3 seconds. */
  private static final int READY_MS = 5_000;
  private static final Certificates CERTIFICATES = Certificates.OF_THIS_PROCESS;

  /** The pause after a manager did not answer: a program makes many connections. */
  private static final long ALONE_NS = TimeUnit.SECONDS.toNanos(5);
  private static volatile long aloneUntil = System.nanoTime();

  private Manager() {}

  /** Notes that the manager did not answer in time. */
  static void leaveAlone() {
    aloneUntil = System.nanoTime() + ALONE_NS;
  }

  /** An established connection: plaintext flows over the channel, which does not block. */
  static final class Connection {
    final Pipe pipe;
    final String id;
    final ManagedSession session;

    private Connection(Pipe pipe, String id, ManagedSession session) {
      this.pipe = pipe;
      this.id = id;
      this.session = session;
    }
  }

  /**
   * Asks for a connection.
   *
   * @param trust a value of the field {@code trust}, as JSON
   * @param begun takes what ends the attempt when it is closed
   * @throws IOException if there is no manager, it does not answer, or it makes no connection, with its reason
   */
  static Connection connect(
      Wanted wanted, InetSocketAddress server, String trust, int deadlineMs, Consumer<Closeable> begun)
      throws IOException {
    int deadline = deadlineMs > 0 ? Math.min(deadlineMs, 120_000) : DEADLINE_MS;
    Map<String, X509Certificate> known = CERTIFICATES.known(place(wanted));
    String wish = wish("connect", wanted, known.keySet(), trust)
        + ",\"addresses\":[" + quoted(server.getAddress()) + "],\"deadline_ms\":" + deadline + "}}";
    Pipe pipe = pipe();
    begun.accept(pipe);
    try {
      Map<?, ?> facts = asked(pipe, wish, "connected", deadline + PATIENCE_MS);
      String id = Json.of(facts, "connection", String.class);
      Connection connection = new Connection(pipe, id, session(wanted, facts, known));
      pipe = null;
      return connection;
    } catch (ClassCastException | IllegalArgumentException | CertificateException wrong) {
      throw new IOException("rejoin manager answered something else", wrong);
    } finally {
      if (pipe != null) {
        pipe.close();
      }
    }
  }

  /**
   * Asks for a connection whose records the program carries.
   *
   * @param address the peer of the program's own socket
   * @throws IOException if there is no manager, it does not answer, or it has no session for the place
   */
  static Records records(Wanted wanted, InetAddress address, String trust) throws IOException {
    Map<String, X509Certificate> known = CERTIFICATES.known(place(wanted));
    String wish = wish("records", wanted, known.keySet(), trust) + ",\"address\":" + quoted(address) + "}}";
    Pipe pipe = pipe();
    Records records = null;
    try {
      asked(pipe, wish, "ready", READY_MS);
      records = new Records(pipe, known);
      return records;
    } catch (ClassCastException | IllegalArgumentException wrong) {
      throw new IOException("rejoin manager answered something else", wrong);
    } finally {
      if (records == null) {
        pipe.close();
      }
    }
  }

  /** Makes the session of an established connection from the manager's facts. */
  static ManagedSession session(Wanted wanted, Map<?, ?> facts, Map<String, X509Certificate> known)
      throws CertificateException {
    X509Certificate[] chain = CERTIFICATES.chain(place(wanted), Json.of(facts, "chain", List.class), known);
    return ManagedSession.of(wanted.host(), wanted.port(), facts, chain);
  }

  /** Returns true if the server announced the end of this connection. */
  static boolean endedWell(String id) {
    String wish = "{\"rejoin\":1,\"end\":{\"connection\":" + Json.quoted(id) + "}}";
    try (Pipe pipe = new Pipe(dial())) {
      return "clean".equals(answer(pipe, wish, PATIENCE_MS).get("end"));
    } catch (IOException | ClassCastException | IllegalArgumentException unknown) {
      return false;
    }
  }

  /** Opens a pipe for a new connection. */
  private static Pipe pipe() throws IOException {
    if (System.nanoTime() - aloneUntil < 0) {
      throw new IOException("rejoin manager did not answer a moment ago");
    }
    return new Pipe(dial());
  }

  /** Connects to {@code rejoin.socket}, else the user's own manager, else the system's. */
  private static SocketChannel dial() throws IOException {
    List<Path> places = new ArrayList<>();
    String said = System.getProperty("rejoin.socket");
    String runtime = System.getenv("XDG_RUNTIME_DIR");
    if (said != null) {
      places.add(Path.of(said));
    } else {
      if (runtime != null && !runtime.isEmpty()) {
        places.add(Path.of(runtime, "rejoin.sock"));
      }
      places.add(SYSTEM_SOCKET);
    }
    IOException first = null;
    for (Path place : places) {
      SocketChannel channel = SocketChannel.open(StandardProtocolFamily.UNIX);
      try {
        // A manager that accepts nobody must not block the program.
        channel.configureBlocking(false);
        if (!channel.connect(UnixDomainSocketAddress.of(place))) {
          throw new IOException("rejoin manager has no room");
        }
        Believed.check(channel, place);
        return channel;
      } catch (IOException nobody) {
        channel.close();
        first = first == null ? nobody : first;
      }
    }
    throw first;
  }

  private static Map<?, ?> asked(Pipe pipe, String wish, String wanted, int patienceMs) throws IOException {
    Map<?, ?> answer;
    try {
      answer = answer(pipe, wish, patienceMs);
    } catch (SocketTimeoutException silent) {
      leaveAlone();
      throw silent;
    }
    String problem = problem(answer);
    if (problem != null) {
      throw new IOException(problem);
    }
    if (answer.get(wanted) instanceof Map<?, ?> facts) {
      return facts;
    }
    throw new IllegalArgumentException("no " + wanted);
  }

  private static Map<?, ?> answer(Pipe pipe, String wish, int patienceMs) throws IOException {
    byte[] message = wish.getBytes(StandardCharsets.UTF_8);
    if (message.length > REQUEST_BYTES) {
      throw new IOException("the request is longer than rejoin manager reads");
    }
    long until = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(patienceMs);
    pipe.write(ByteBuffer.allocate(4 + message.length).putInt(message.length).put(message).flip(), until);
    int bytes = exactly(pipe, 4, until).getInt();
    if (bytes < 0 || bytes > ANSWER_BYTES) {
      throw new IOException("the answer is longer than those of rejoin manager");
    }
    return message(exactly(pipe, bytes, until).array());
  }

  /** @throws IOException if it is not an answer of this protocol */
  static Map<?, ?> message(byte[] json) throws IOException {
    try {
      Map<?, ?> said = (Map<?, ?>) Json.read(new String(json, StandardCharsets.UTF_8));
      if (Double.valueOf(1).equals(said.get("rejoin"))) {
        return said;
      }
    } catch (ClassCastException | IllegalArgumentException wrong) {
      throw new IOException("rejoin manager answered something else", wrong);
    }
    throw new IOException("rejoin manager is of another version");
  }

  /** Returns the error in a message, or null. */
  static String problem(Map<?, ?> message) {
    Object problem = message.get("error");
    return problem instanceof Map<?, ?> of ? of.get("kind") + ": " + of.get("detail") : null;
  }

  private static ByteBuffer exactly(Pipe pipe, int bytes, long until) throws IOException {
    ByteBuffer room = ByteBuffer.allocate(bytes);
    pipe.fill(room, bytes, until);
    return room.flip();
  }

  /** Writes the fields that requests of all kinds have. */
  private static String wish(String kind, Wanted wanted, Set<String> known, String trust) {
    StringBuilder wish = new StringBuilder("{\"rejoin\":1,\"").append(kind).append("\":{\"host\":");
    wish.append(Json.quoted(wanted.host())).append(",\"port\":").append(wanted.port());
    if (!wanted.protocols().isEmpty()) {
      wish.append(",\"alpn\":").append(quoted(wanted.protocols()));
    }
    if (wanted.onlyTls13()) {
      wish.append(",\"min_version\":\"1.3\"");
    }
    if (!wanted.isNamed()) {
      wish.append(",\"server_name\":false");
    }
    if (!known.isEmpty()) {
      wish.append(",\"known\":").append(quoted(known));
    }
    return wish.append(",\"trust\":").append(trust).toString();
  }

  private static String place(Wanted wanted) {
    return wanted.host() + ":" + wanted.port();
  }

  private static String quoted(Collection<String> words) {
    return words.stream().map(Json::quoted).collect(Collectors.joining(",", "[", "]"));
  }

  /** Quotes an address without its zone, which means nothing to another process. */
  private static String quoted(InetAddress address) {
    return Json.quoted(address.getHostAddress().replaceFirst("%.*", ""));
  }
}
