package rejoin;

import java.io.IOException;
import java.lang.ref.Cleaner;
import java.net.InetAddress;
import java.nio.ByteBuffer;
import java.nio.ReadOnlyBufferException;
import java.security.cert.CertificateException;
import java.security.cert.X509Certificate;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLEngineResult;
import javax.net.ssl.SSLEngineResult.HandshakeStatus;
import javax.net.ssl.SSLEngineResult.Status;
import javax.net.ssl.SSLException;
import javax.net.ssl.SSLHandshakeException;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLSession;

/**
 * A client's engine. With the handshake it becomes the manager's: the program carries the records, the manager does
 * TLS. Where that is impossible, or the manager has no session for the place, it becomes one of the JDK's before
 * anything is sent, as if Rejoin were not there.
 *
 * <p>Records go in and out whole, and in one at a time, as with the JDK's; but the manager sees all that are there, and
 * what it makes of them waits until the program comes to them. The manager is asked, and the application decides on the
 * chain, in delegated tasks; all else is at most one turn with the manager, which answers at once. Threads take turns,
 * too; no lock is held while a task waits.
 */
final class ManagedEngine extends WantedEngine {
  private static final Cleaner ABANDONED = Cleaner.create();
  /** The head of a TLS record: type, version, length. */
  private static final int HEAD_BYTES = 5;
  /** The most plaintext in a record, and the least that a suite adds to it. */
  private static final int MOST_PLAINTEXT = 16 * 1024;
  private static final int LEAST_ADDED = HEAD_BYTES + 16;
  private static final int PACKET_BYTES = ManagedSession.RECORD_BYTES;

  private enum State {
    /** Unused so far. */
    NEW,
    /** A task asks the manager. */
    ASKING,
    /** The manager's handshake with the server. */
    SHAKING,
    /** A task asks the application whether it believes the server. */
    JUDGING,
    STANDS,
    OVER,
    /** The JDK's engine does everything. */
    DIRECT
  }

  private final Trust trust;
  /** The JDK's context, whose engines have the parameters of a program that chooses none. */
  private final SSLContext jdk;
  private State state = State.NEW;
  private Runnable task;
  private Wanted wanted;
  private Records records;
  private Cleaner.Cleanable whenAbandoned;
  private ManagedSession session;
  /** A failure that the next wrap or unwrap throws, once. */
  private SSLException failure;
  private final Bytes outgoing = new Bytes();
  private final Bytes incoming = new Bytes();
  /** The bytes of the server's records that the manager has seen and the program has not yet passed. */
  private int ahead;
  /** Frames about an error in those records, which take effect when the program has passed them. */
  private List<Records.Frame> later = List.of();
  private boolean isInboundClosed;
  private boolean isOutboundClosed;
  private boolean wasEndedByServer;
  private boolean needsFinished;

  ManagedEngine(SSLContext jdk, Trust trust, String host, int port) {
    super(jdk.createSSLEngine(host, port));
    this.jdk = jdk;
    this.trust = trust;
  }

  // Becoming.

  @Override
  public synchronized void beginHandshake() throws SSLException {
    begin();
    if (state == State.DIRECT) {
      direct.beginHandshake();
    } else if (state == State.STANDS) {
      throw new SSLException("rejoin manager shakes hands once");
    }
  }

  private void begin() {
    if (state != State.NEW) {
      return;
    }
    if (!direct.getUseClientMode()) {
      state = State.DIRECT;
      return;
    }
    SSLParameters parameters = direct.getSSLParameters();
    String otherwise = Wanted.otherwise(getPeerHost(), parameters, jdk.getDefaultSSLParameters());
    if (otherwise == null && !direct.getEnableSessionCreation()) {
      otherwise = "the program chooses its own way";
    }
    if (otherwise == null && trust.sharesNothing()) {
      otherwise = "the program believes in no authorities";
    }
    // An engine cannot begin again after it was refused: the JVM's own switch counts before that.
    if (otherwise == null && (trust.missesStatus() || Boolean.getBoolean("com.sun.net.ssl.checkRevocation"))) {
      otherwise = Trust.MISSES_STATUS;
    }
    if (otherwise != null) {
      explain(otherwise);
      state = State.DIRECT;
      return;
    }
    wanted = Wanted.of(getPeerHost(), getPeerPort(), parameters);
    state = State.ASKING;
    task = this::ask;
  }

  private void ask() {
    Records opened = null;
    List<Records.Frame> first = List.of();
    String why = null;
    try {
      opened = Manager.records(wanted, InetAddress.getByName(wanted.host()), trust.told());
      first = opened.turn('r', Records.NOTHING);
      why = first.isEmpty() ? "no ClientHello" : null;
    } catch (IOException | RuntimeException none) {
      // Nothing was sent: the JDK's own engine does as well.
      why = Objects.requireNonNullElse(none.getMessage(), none.toString());
    }
    for (Records.Frame frame : first) {
      why = frame.message() == null ? why : String.valueOf(Manager.problem(frame.message()));
    }
    synchronized (this) {
      if (opened == null || why != null || state != State.ASKING) {
        if (opened != null) {
          opened.close();
        }
        becomeDirect(why);
        return;
      }
      records = opened;
      whenAbandoned = ABANDONED.register(this, opened::close);
      state = State.SHAKING;
      first.forEach(frame -> outgoing.add(frame.body()));
    }
  }

  private void becomeDirect(String why) {
    if (state != State.ASKING) {
      return;
    }
    explain("not through rejoin manager: " + why);
    state = State.DIRECT;
    try {
      direct.beginHandshake();
    } catch (SSLException error) {
      failure = error;
    }
  }

  /** The application's own decision on the server's real chain. */
  private void judge(ManagedSession told) {
    SSLException refused = null;
    X509Certificate[] chain = told.chain();
    try {
      trust.judge(manager -> manager.checkServerTrusted(chain, Trust.KEY_EXCHANGE, this));
    } catch (SSLException no) {
      refused = no;
    }
    synchronized (this) {
      if (state != State.JUDGING) {
        return;
      }
      try {
        if (refused == null) {
          turn('v', Records.NOTHING);
          state = State.STANDS;
          needsFinished = true;
        } else {
          turn('c', Records.NOTHING);
          failure = over(refused);
        }
      } catch (SSLException gone) {
        failure = refused == null ? gone : refused;
      }
    }
  }

  private void explain(String why) {
    Wanted.explain(getPeerHost(), getPeerPort(), why);
  }

  // Turns with the manager.

  /** @throws SSLException if it is over */
  private void turn(char kind, ByteBuffer body) throws SSLException {
    take(later);
    take(said(kind, body));
  }

  private List<Records.Frame> said(char kind, ByteBuffer body) throws SSLException {
    try {
      return records.turn(kind, body);
    } catch (IOException gone) {
      throw over(new SSLException(gone.getMessage(), gone));
    }
  }

  private void take(List<Records.Frame> said) throws SSLException {
    try {
      for (Records.Frame frame : said) {
        take(frame);
      }
    } catch (SSLException error) {
      throw over(error);
    } catch (CertificateException | ClassCastException | IllegalArgumentException wrong) {
      throw over(new SSLException("rejoin manager answered something else", wrong));
    }
  }

  private void take(Records.Frame frame) throws SSLException, CertificateException {
    switch (frame.kind()) {
      case 'r' -> outgoing.add(frame.body());
      case 'p' -> incoming.add(frame.body());
      case 'c' -> wasEndedByServer = true;
      case 'j' -> take(frame.message());
      default -> throw new IllegalArgumentException("frame " + frame.kind());
    }
  }

  private void take(Map<?, ?> message) throws SSLException, CertificateException {
    String problem = Manager.problem(message);
    if (problem != null) {
      throw state == State.STANDS ? new SSLException(problem) : new SSLHandshakeException(problem);
    }
    if (state != State.SHAKING || !(message.get("connected") instanceof Map<?, ?> facts)) {
      throw new IllegalArgumentException("no connected");
    }
    ManagedSession told = Manager.session(wanted, facts, records.known());
    explain(told.isResumed() ? "resumed" : "in full");
    session = told;
    state = State.JUDGING;
    task = () -> judge(told);
  }

  /** Ends the connection. Records that wait for the server may still be sent: the alert is among them. */
  private SSLException over(SSLException why) {
    session = state == State.STANDS ? session : null;
    state = State.OVER;
    task = null;
    needsFinished = false;
    isInboundClosed = true;
    isOutboundClosed = true;
    incoming.clear();
    later = List.of();
    release();
    return why;
  }

  private void release() {
    if (whenAbandoned != null) {
      whenAbandoned.clean();
    }
  }

  // Records and plaintext.

  @Override
  public synchronized SSLEngineResult wrap(ByteBuffer[] from, int offset, int length, ByteBuffer to)
      throws SSLException {
    begin();
    fail();
    if (state == State.DIRECT) {
      return direct.wrap(from, offset, length, to);
    }
    check(from, offset, length, false);
    check(new ByteBuffer[] {to}, 0, 1, true);
    if (getHandshakeStatus() == HandshakeStatus.NEED_TASK) {
      return result(Status.OK, 0, 0);
    }
    if (outgoing.isEmpty()) {
      if (needsFinished) {
        needsFinished = false;
        return new SSLEngineResult(Status.OK, HandshakeStatus.FINISHED, 0, 0);
      }
      if (isOutboundClosed) {
        return result(Status.CLOSED, 0, 0);
      }
      if (state == State.SHAKING) {
        return result(Status.OK, 0, 0);
      }
    }
    if (to.remaining() < PACKET_BYTES) {
      return result(Status.BUFFER_OVERFLOW, 0, 0);
    }
    int consumed = outgoing.isEmpty() ? encrypt(from, offset, length, to.remaining() / PACKET_BYTES) : 0;
    int produced = 0;
    do {
      produced += outgoing.moveTo(to, firstRecord());
    } while (!outgoing.isEmpty() && to.remaining() >= firstRecord());
    Status status = isOutboundDone() ? Status.CLOSED : Status.OK;
    if (needsFinished && outgoing.isEmpty()) {
      needsFinished = false;
      return new SSLEngineResult(status, HandshakeStatus.FINISHED, consumed, produced);
    }
    return result(status, consumed, produced);
  }

  /** Encrypts at most so many records. */
  private int encrypt(ByteBuffer[] from, int offset, int length, int records) throws SSLException {
    int most = Math.min(records * MOST_PLAINTEXT, Records.MOST_BYTES);
    ByteBuffer plaintext = ByteBuffer.allocate((int) Math.min(most, remaining(from, offset, length)));
    for (int i = offset; i < offset + length && plaintext.hasRemaining(); i++) {
      int count = Math.min(plaintext.remaining(), from[i].remaining());
      plaintext.put(from[i].slice(from[i].position(), count));
      from[i].position(from[i].position() + count);
    }
    if (plaintext.position() > 0) {
      turn('p', plaintext.flip());
    }
    return plaintext.limit();
  }

  /** Returns the length of the first record that waits for the server. */
  private int firstRecord() {
    return outgoing.size() < HEAD_BYTES ? outgoing.size() : HEAD_BYTES + (outgoing.get(3) << 8 | outgoing.get(4));
  }

  @Override
  public synchronized SSLEngineResult unwrap(ByteBuffer from, ByteBuffer[] to, int offset, int length)
      throws SSLException {
    begin();
    fail();
    if (state == State.DIRECT) {
      return direct.unwrap(from, to, offset, length);
    }
    check(new ByteBuffer[] {from}, 0, 1, false);
    check(to, offset, length, true);
    if (isInboundDone()) {
      return result(Status.CLOSED, 0, 0);
    }
    HandshakeStatus before = getHandshakeStatus();
    boolean isShaking = state != State.STANDS || needsFinished;
    if (before == HandshakeStatus.NEED_TASK || isShaking && before == HandshakeStatus.NEED_WRAP) {
      return result(Status.OK, 0, 0);
    }
    if (ahead == 0 && !incoming.isEmpty()) {
      // It waited while the application decided.
      int produced = decrypted(to, offset, length, Integer.MAX_VALUE);
      return result(produced == 0 ? Status.BUFFER_OVERFLOW : Status.OK, 0, produced);
    }
    int record = record(from, 0);
    if (record == 0) {
      throw over(new SSLException("Unrecognized SSL message, plaintext connection?"));
    }
    if (record > 0 && !isShaking && plaintext(record) > remaining(to, offset, length)) {
      return result(Status.BUFFER_OVERFLOW, 0, 0);
    }
    if (record < 0 || from.remaining() < record) {
      return result(Status.BUFFER_UNDERFLOW, 0, 0);
    }
    if (ahead == 0) {
      show(from, isShaking ? record : records(from));
    }
    if (incoming.isEmpty()) {
      take(later);
    }
    from.position(from.position() + record);
    ahead -= record;
    int produced = decrypted(to, offset, length, plaintext(record));
    if (ahead == 0) {
      noteEnd();
    }
    return result(isInboundDone() && produced == 0 ? Status.CLOSED : Status.OK, record, produced);
  }

  /** Shows the manager so many bytes. */
  private void show(ByteBuffer from, int count) throws SSLException {
    List<Records.Frame> said = said('r', from.slice(from.position(), count));
    ahead = count;
    if (state == State.STANDS && said.stream().anyMatch(frame -> frame.kind() == 'j')) {
      // Plaintext that came before the error is delivered before it.
      later = said.stream().filter(frame -> frame.kind() != 'p').toList();
      said = said.stream().filter(frame -> frame.kind() == 'p').toList();
    }
    take(said);
  }

  /** Returns the total length of the whole records that are here. */
  private static int records(ByteBuffer from) {
    int all = 0;
    for (int next = record(from, 0); next > 0; next = record(from, all)) {
      if (all + next > Math.min(from.remaining(), Records.MOST_BYTES)) {
        break;
      }
      all += next;
    }
    return all;
  }

  /** Returns the length of the record that begins there: negative if not known yet, zero if it is not a record. */
  private static int record(ByteBuffer from, int offset) {
    if (from.remaining() - offset < HEAD_BYTES) {
      return -1;
    }
    int at = from.position() + offset;
    int type = from.get(at);
    int length = HEAD_BYTES + ((from.get(at + 3) & 0xff) << 8 | from.get(at + 4) & 0xff);
    return type < 20 || type > 23 || from.get(at + 1) != 3 || length > PACKET_BYTES ? 0 : length;
  }

  /** Returns the most plaintext that a record of this length can hold. */
  private static int plaintext(int record) {
    return Math.min(MOST_PLAINTEXT, record - LEAST_ADDED);
  }

  private int decrypted(ByteBuffer[] to, int offset, int length, int most) {
    int produced = 0;
    for (int i = offset; i < offset + length && produced < most; i++) {
      produced += incoming.moveTo(to[i], most - produced);
    }
    return produced;
  }

  /** Notes the server's end; with TLS 1.2 it ends both directions, as in the JDK. */
  private void noteEnd() throws SSLException {
    if (wasEndedByServer && !isInboundClosed) {
      isInboundClosed = true;
      boolean isBoth = Boolean.getBoolean("jdk.tls.acknowledgeCloseNotify");
      if (state != State.STANDS || isBoth || "TLSv1.2".equals(session.getProtocol())) {
        closeOutbound();
      } else if (isOutboundClosed) {
        release();
      }
    }
  }

  /** Throws the failure of a task. */
  private void fail() throws SSLException {
    SSLException told = failure;
    if (told != null) {
      failure = null;
      throw told;
    }
  }

  private SSLEngineResult result(Status status, int consumed, int produced) {
    return new SSLEngineResult(status, getHandshakeStatus(), consumed, produced);
  }

  private static void check(ByteBuffer[] buffers, int offset, int length, boolean areWritten) {
    if (buffers == null || Arrays.asList(buffers).subList(offset, offset + length).contains(null)) {
      throw new IllegalArgumentException("a buffer is null");
    }
    for (int i = offset; i < offset + length; i++) {
      if (areWritten && buffers[i].isReadOnly()) {
        throw new ReadOnlyBufferException();
      }
    }
  }

  private static long remaining(ByteBuffer[] buffers, int offset, int length) {
    long remaining = 0;
    for (int i = offset; i < offset + length; i++) {
      remaining += buffers[i].remaining();
    }
    return remaining;
  }

  // Its end.

  @Override
  public synchronized void closeOutbound() {
    if (isStillDirect()) {
      direct.closeOutbound();
    } else if (!isOutboundClosed) {
      isOutboundClosed = true;
      boolean stood = state == State.STANDS;
      try {
        turn('c', Records.NOTHING);
      } catch (SSLException gone) {
        return;
      }
      if (!stood) {
        over(null);
      } else if (isInboundClosed) {
        release();
      }
    }
  }

  @Override
  public synchronized void closeInbound() throws SSLException {
    if (isStillDirect()) {
      direct.closeInbound();
    } else if (!isInboundClosed) {
      isInboundClosed = true;
      boolean stood = state == State.STANDS;
      try {
        turn('e', Records.NOTHING);
      } catch (SSLException gone) {
        stood = false;
      }
      if (!stood || isOutboundClosed) {
        over(null);
      }
      throw new SSLException("closing inbound before receiving peer's close_notify");
    }
  }

  /** Returns true if nothing was sent, or the JDK's engine does everything anyway. */
  private boolean isStillDirect() {
    if (state == State.NEW || state == State.ASKING) {
      state = State.DIRECT;
      task = null;
    }
    return state == State.DIRECT;
  }

  @Override
  public synchronized boolean isInboundDone() {
    return state == State.DIRECT ? direct.isInboundDone() : isInboundClosed && incoming.isEmpty();
  }

  @Override
  public synchronized boolean isOutboundDone() {
    return state == State.DIRECT ? direct.isOutboundDone() : isOutboundClosed && outgoing.isEmpty();
  }

  // What it is.

  @Override
  public synchronized Runnable getDelegatedTask() {
    if (state == State.DIRECT) {
      return direct.getDelegatedTask();
    }
    Runnable next = task;
    task = null;
    return next;
  }

  @Override
  public synchronized HandshakeStatus getHandshakeStatus() {
    return switch (state) {
      case NEW -> HandshakeStatus.NOT_HANDSHAKING;
      case ASKING, JUDGING -> HandshakeStatus.NEED_TASK;
      case DIRECT -> failure != null ? HandshakeStatus.NEED_WRAP : direct.getHandshakeStatus();
      case SHAKING -> outgoing.isEmpty() ? HandshakeStatus.NEED_UNWRAP : HandshakeStatus.NEED_WRAP;
      case STANDS, OVER -> failure != null || needsFinished || !outgoing.isEmpty()
          ? HandshakeStatus.NEED_WRAP
          : HandshakeStatus.NOT_HANDSHAKING;
    };
  }

  @Override
  public synchronized SSLSession getSession() {
    return hasSession() ? session : direct.getSession();
  }

  private boolean hasSession() {
    return session != null && state != State.JUDGING;
  }

  @Override
  public synchronized SSLSession getHandshakeSession() {
    return state == State.JUDGING ? session : direct.getHandshakeSession();
  }

  @Override
  public synchronized String getApplicationProtocol() {
    return hasSession() ? session.protocol : direct.getApplicationProtocol();
  }

  @Override
  public synchronized String getHandshakeApplicationProtocol() {
    return state == State.JUDGING ? session.protocol : direct.getHandshakeApplicationProtocol();
  }

  @Override
  public String toString() {
    return "rejoin.ManagedEngine[" + getPeerHost() + ":" + getPeerPort() + ", " + state + "]";
  }

  @Override
  public synchronized void setUseClientMode(boolean client) {
    if (state != State.NEW && state != State.DIRECT && !client) {
      throw new IllegalArgumentException("Cannot change mode after SSL traffic has started");
    }
    direct.setUseClientMode(client);
  }
}
