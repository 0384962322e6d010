import java.io.ByteArrayOutputStream;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.security.MessageDigest;
import java.util.EnumSet;
import java.util.HexFormat;
import java.util.Set;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.SSLEngineResult;
import javax.net.ssl.SSLEngineResult.HandshakeStatus;
import javax.net.ssl.SSLEngineResult.Status;
import javax.net.ssl.SSLException;
import javax.net.ssl.SSLParameters;

/**
 * A program that knows nothing of Rejoin, and drives an {@code SSLEngine} of its own as awkwardly as may be: pieces of
 * every size come in, buffers are too small. Says what it sees of the engine, which is what any engine shows.
 */
public final class Drive {
  private final SSLEngine engine;
  private final SocketChannel server;
  private final ByteBuffer in = ByteBuffer.allocate(64 * 1024).limit(0);
  private final Set<HandshakeStatus> seen = EnumSet.noneOf(HandshakeStatus.class);
  /** The bytes that came in, of which the engine sees a little more at a time. */
  private int shown;
  private int step;

  private Drive(int port) throws Exception {
    engine = SSLContext.getDefault().createSSLEngine("localhost", port);
    engine.setUseClientMode(true);
    SSLParameters parameters = engine.getSSLParameters();
    parameters.setEndpointIdentificationAlgorithm("HTTPS");
    parameters.setApplicationProtocols(new String[] {"http/1.1"});
    engine.setSSLParameters(parameters);
    server = SocketChannel.open(new InetSocketAddress("127.0.0.1", port));
  }

  public static void main(String[] words) {
    try {
      Drive drive = new Drive(Integer.parseInt(words[0]));
      drive.closeOthers(Integer.parseInt(words[0]));
      drive.shakeHands();
      drive.say("GET /big HTTP/1.0\r\nHost: localhost\r\n\r\n");
      drive.hear();
      drive.end();
    } catch (Exception error) {
      System.out.println(error);
      System.exit(1);
    }
  }

  /** Engines that come to nothing. */
  private void closeOthers(int port) throws Exception {
    SSLEngine unused = SSLContext.getDefault().createSSLEngine("localhost", port);
    unused.setUseClientMode(true);
    unused.closeOutbound();
    System.out.println("unused: " + unused.wrap(nothing(), room(unused)).getStatus() + ", " + unused.isOutboundDone());
    SSLEngine undecided = SSLContext.getDefault().createSSLEngine("localhost", port);
    try {
      undecided.wrap(nothing(), room(undecided));
    } catch (IllegalStateException error) {
      System.out.println("undecided: " + error.getMessage());
    }
    SSLEngine asked = SSLContext.getDefault().createSSLEngine("localhost", port);
    asked.setUseClientMode(true);
    asked.beginHandshake();
    asked.closeOutbound();
    asked.closeOutbound();
    run(asked);
  }

  private void shakeHands() throws Exception {
    System.out.println("before: " + engine.getHandshakeStatus() + ", " + engine.getApplicationProtocol());
    wrap(nothing());
    while (engine.getHandshakeStatus() != HandshakeStatus.NOT_HANDSHAKING) {
      switch (engine.getHandshakeStatus()) {
        case NEED_TASK -> run(engine);
        case NEED_WRAP -> wrap(nothing());
        default -> unwrap(room(engine));
      }
    }
    boolean isWhole = seen.contains(HandshakeStatus.FINISHED) && engine.getHandshakeSession() == null;
    System.out.println("stands: " + isWhole + ", " + engine.getApplicationProtocol() + ", "
        + engine.getSession().getProtocol() + ", " + engine.getSession().getPeerPrincipal());
  }

  /** A byte at a time, and then too much for the room. */
  private void say(String request) throws Exception {
    ByteBuffer first = ByteBuffer.wrap(request.getBytes(), 0, 3);
    while (first.hasRemaining()) {
      wrap(first.slice(first.position(), 1));
      first.position(first.position() + 1);
    }
    ByteBuffer rest = ByteBuffer.wrap(request.getBytes(), 3, request.length() - 3);
    SSLEngineResult small = engine.wrap(rest, ByteBuffer.allocate(10));
    System.out.println("small: " + small.getStatus() + ", " + small.bytesConsumed() + ", " + small.bytesProduced());
    wrap(rest);
    System.out.println("said: " + rest.hasRemaining());
  }

  private void hear() throws Exception {
    ByteArrayOutputStream heard = new ByteArrayOutputStream();
    Status status = Status.OK;
    for (int roomBytes = 1; status != Status.CLOSED; ) {
      ByteBuffer[] room = {ByteBuffer.allocate(roomBytes / 2), ByteBuffer.allocateDirect(roomBytes - roomBytes / 2)};
      status = unwrap(room);
      boolean wasSmall = status == Status.BUFFER_OVERFLOW;
      roomBytes = wasSmall ? engine.getSession().getApplicationBufferSize() : Math.max(1, roomBytes / 2);
      for (ByteBuffer part : room) {
        byte[] bytes = new byte[part.flip().remaining()];
        part.get(bytes);
        heard.writeBytes(bytes);
      }
    }
    byte[] body = heard.toString("ISO-8859-1").split("\r\n\r\n", 2)[1].getBytes("ISO-8859-1");
    String digest = HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(body));
    System.out.println("heard: " + body.length + " bytes, " + digest);
  }

  private void end() throws Exception {
    System.out.println("server's end: " + engine.isInboundDone());
    engine.closeInbound();
    engine.closeOutbound();
    while (!engine.isOutboundDone()) {
      wrap(nothing());
    }
    SSLEngineResult more = engine.wrap(ByteBuffer.wrap(new byte[] {1}), room(engine));
    System.out.println("over: " + more.getStatus() + ", " + more.bytesProduced() + ", " + engine.getHandshakeStatus());
    SSLEngine truncated = new Drive(server.socket().getPort()).standing();
    try {
      truncated.closeInbound();
    } catch (SSLException error) {
      System.out.println("truncated: " + error.getMessage() + ", " + truncated.isInboundDone());
    }
  }

  private SSLEngine standing() throws Exception {
    shakeHands();
    return engine;
  }

  private void wrap(ByteBuffer from) throws Exception {
    ByteBuffer room = room(engine);
    SSLEngineResult result = engine.wrap(from, room);
    seen.add(result.getHandshakeStatus());
    room.flip();
    if (room.remaining() != result.bytesProduced()) {
      throw new IllegalStateException("produced " + result);
    }
    while (room.hasRemaining()) {
      server.write(room);
    }
  }

  private Status unwrap(ByteBuffer... room) throws Exception {
    ByteBuffer part = in.slice(in.position(), Math.min(in.remaining(), shown));
    SSLEngineResult result = engine.unwrap(part, room);
    seen.add(result.getHandshakeStatus());
    if (part.position() != result.bytesConsumed()) {
      throw new IllegalStateException("consumed " + result);
    }
    in.position(in.position() + result.bytesConsumed());
    shown -= result.bytesConsumed();
    if (result.getStatus() == Status.BUFFER_UNDERFLOW) {
      show();
    }
    return result.getStatus();
  }

  /** Some more of what came, or of what comes. */
  private void show() throws Exception {
    if (in.remaining() <= shown) {
      in.compact();
      boolean isOver = server.read(in) < 0;
      in.flip();
      if (isOver) {
        throw new IllegalStateException("the server broke off");
      }
    }
    step = step % 4_999 + 7;
    shown = Math.min(in.remaining(), shown + step);
  }

  private static void run(SSLEngine engine) {
    for (Runnable task = engine.getDelegatedTask(); task != null; task = engine.getDelegatedTask()) {
      task.run();
    }
  }

  private static ByteBuffer nothing() {
    return ByteBuffer.allocate(0);
  }

  private static ByteBuffer room(SSLEngine engine) {
    return ByteBuffer.allocate(engine.getSession().getPacketBufferSize());
  }
}
