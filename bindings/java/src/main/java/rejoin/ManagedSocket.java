package rejoin;

import java.io.Closeable;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.SocketAddress;
import java.net.SocketException;
import java.net.UnknownHostException;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.function.BiFunction;
import javax.net.ssl.HandshakeCompletedEvent;
import javax.net.ssl.HandshakeCompletedListener;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.SSLException;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLSession;
import javax.net.ssl.SSLSocket;

/**
 * A client's socket. With the handshake it becomes the manager's: plaintext over a Unix socket. Where that is
 * impossible, or the manager refuses, it becomes one of the JDK's, as if Rejoin were not there.
 *
 * <p>Nothing is connected before the handshake, which therefore also reports a TCP connection that fails.
 */
final class ManagedSocket extends WantedSocket {
  /** A record's plaintext. */
  private static final int AHEAD_BYTES = 16 * 1024;

  private final SSLContext jdk;
  private final Trust trust;
  private final Input input = new Input();
  private final List<HandshakeCompletedListener> listeners = new CopyOnWriteArrayList<>();
  /** An engine of the JDK's, which keeps what the program sets, and refuses what the JDK would refuse. */
  private final SSLEngine settings;
  /** The parameters of a program that chooses none. */
  private final SSLParameters usual;
  /** True if it is for {@code HttpsURLConnection}, which gives names that it does not give to the JDK's sockets. */
  private final boolean isOfUrl;
  private BiFunction<SSLSocket, List<String>, String> selector;
  private InetSocketAddress server;
  private int connectTimeoutMs;
  private int readTimeoutMs;
  /** True if the program asked for something that only a socket of the JDK's does. */
  private boolean wantsJdk;
  private boolean hasShakenHands;
  private volatile boolean isClosed;
  private volatile boolean isInputShut;
  private volatile boolean isOutputShut;
  /** The JDK's socket; after the handshake either this or {@code managed} is set. */
  private volatile SSLSocket direct;
  /** Its streams, once the handshake is over: it gives none out after the server's end. */
  private volatile InputStream directInput;
  private volatile OutputStream directOutput;
  private volatile Manager.Connection managed;
  /** The pipe or TCP socket of an attempt, which {@link #close} ends. */
  private volatile Closeable attempt;
  /** The session on whose chain the application is deciding. */
  private volatile SSLSession handshake;

  ManagedSocket(SSLContext jdk, Trust trust, boolean isOfUrl) {
    this.jdk = jdk;
    this.trust = trust;
    this.isOfUrl = isOfUrl;
    settings = jdk.createSSLEngine();
    settings.setUseClientMode(true);
    usual = settings.getSSLParameters();
  }

  // Becoming.

  @Override
  public void connect(SocketAddress address) throws IOException {
    connect(address, 0);
  }

  @Override
  public void connect(SocketAddress address, int timeoutMs) throws IOException {
    if (!(address instanceof InetSocketAddress)) {
      throw new IllegalArgumentException("Unsupported address type");
    }
    if (isClosed || server != null) {
      throw new SocketException(isClosed ? "Socket is closed" : "already connected");
    }
    InetSocketAddress to = (InetSocketAddress) address;
    SSLSocket bound = direct;
    // A proxy may know the name.
    if (bound != null) {
      bound.connect(to, timeoutMs);
    } else if (to.isUnresolved() && !Proxies.areBefore(to)) {
      throw new UnknownHostException(to.getHostName());
    }
    server = to;
    connectTimeoutMs = timeoutMs;
  }

  @Override
  public void bind(SocketAddress own) throws IOException {
    wantsJdk = true;
    becomeDirect().bind(own);
  }

  @Override
  public void startHandshake() throws IOException {
    if (!stands() && direct != null) {
      // Once more: TLS 1.2 negotiates again.
      direct.startHandshake();
    }
  }

  /** Becomes the manager's or the JDK's. Returns true if it did so now, or is the manager's. */
  private boolean stands() throws IOException {
    synchronized (listeners) {
      if (isClosed) {
        throw new SocketException("Socket is closed");
      }
      if (managed != null) {
        return true;
      }
      if (!isConnected()) {
        throw new SocketException("Socket is not connected");
      }
      if (direct != null && hasShakenHands) {
        return false;
      }
      if (direct == null && mayBeManaged() && become()) {
        return true;
      }
      becomeDirect().startHandshake();
      directInput = direct.getInputStream();
      directOutput = direct.getOutputStream();
      hasShakenHands = true;
      return true;
    }
  }

  /** Returns true if the manager can make the connection that the program wants. */
  private boolean mayBeManaged() {
    boolean choosesItself = wantsJdk || !settings.getEnableSessionCreation();
    String otherwise = choosesItself
        ? "the program chooses its own way"
        : Wanted.otherwise(host(), settings.getSSLParameters(), usual);
    if (otherwise == null && trust.missesStatus()) {
      otherwise = Trust.MISSES_STATUS;
    }
    if (otherwise == null && Proxies.areBefore(server)) {
      otherwise = "through a proxy";
    }
    if (otherwise != null) {
      explain(otherwise);
    }
    return otherwise == null;
  }

  /** Becomes the manager's. Returns true if it has. */
  private boolean become() throws IOException {
    Wanted wanted = Wanted.of(host(), server.getPort(), settings.getSSLParameters());
    Manager.Connection connection;
    try {
      connection = Manager.connect(wanted, server, trust.told(), connectTimeoutMs, this::begin);
    } catch (IOException none) {
      ensureOpen();
      // The JDK then connects, or reports the error to the application.
      explain("not through rejoin manager: " + none.getMessage());
      return false;
    }
    explain(connection.session.isResumed() ? "resumed" : "in full");
    if (!decide(connection)) {
      return false;
    }
    managed = connection;
    handshake = null;
    // From here on it is closed by `managed`.
    attempt = null;
    ensureOpen();
    HandshakeCompletedEvent event = new HandshakeCompletedEvent(this, connection.session);
    if (!listeners.isEmpty()) {
      Thread thread = new Thread(() -> listeners.forEach(listener -> listener.handshakeCompleted(event)));
      thread.setDaemon(true);
      thread.start();
    }
    return true;
  }

  /** Notes what an attempt is, for {@link #close}, which may have come before. */
  private void begin(Closeable begun) {
    attempt = begun;
    if (isClosed) {
      closeQuietly(begun);
    }
  }

  /** @throws SocketException if the program has closed this, after what was made meanwhile is closed, too */
  private void ensureOpen() throws IOException {
    if (isClosed) {
      close();
      throw new SocketException("Socket is closed");
    }
  }

  private static void closeQuietly(Closeable closed) {
    try {
      closed.close();
    } catch (IOException gone) {
      // It has already gone.
    }
  }

  /**
   * Lets the application decide on the server's real chain.
   *
   * @return false if the JDK sees more than the manager shows: the chain of a resumed session, which may be another by now,
   *     or a stapled OCSP response
   * @throws SSLException if it refuses the server
   */
  private boolean decide(Manager.Connection connection) throws IOException {
    handshake = connection.session;
    try {
      trust.judge(manager -> manager.checkServerTrusted(connection.session.chain(), Trust.KEY_EXCHANGE, this));
      return true;
    } catch (SSLException refused) {
      handshake = null;
      connection.pipe.close();
      if (connection.session.isResumed() || trust.missesStatus()) {
        ensureOpen();
        explain("the program refuses what the manager shows: " + refused.getMessage());
        return false;
      }
      close();
      throw refused;
    }
  }

  private void explain(String why) {
    Wanted.explain(host(), server.getPort(), why);
  }

  private SSLSocket becomeDirect() throws IOException {
    synchronized (listeners) {
      if (direct == null) {
        SSLSocket socket;
        if (server == null) {
          socket = (SSLSocket) jdk.getSocketFactory().createSocket();
          giveOptions(socket);
        } else {
          Socket fresh = new Socket();
          begin(fresh);
          giveOptions(fresh);
          fresh.connect(server, connectTimeoutMs);
          socket = (SSLSocket) jdk.getSocketFactory().createSocket(fresh, host(), server.getPort(), true);
        }
        SSLParameters parameters = settings.getSSLParameters();
        if (isOfUrl) {
          parameters.setServerNames(null);
        }
        socket.setSSLParameters(parameters);
        socket.setEnableSessionCreation(settings.getEnableSessionCreation());
        socket.setHandshakeApplicationProtocolSelector(selector);
        socket.setSoTimeout(readTimeoutMs);
        listeners.forEach(socket::addHandshakeCompletedListener);
        direct = socket;
        attempt = null;
        ensureOpen();
      }
      return direct;
    }
  }

  /** Returns the name that the application gave. */
  private String host() {
    return server.getHostString();
  }

  // Plaintext.

  @Override
  public InputStream getInputStream() throws IOException {
    ensureUsable();
    return input;
  }

  @Override
  public OutputStream getOutputStream() throws IOException {
    ensureUsable();
    return new Output();
  }

  private void ensureUsable() throws IOException {
    if (isClosed) {
      throw new SocketException("Socket is closed");
    }
    if (!isConnected()) {
      throw new SocketException("Socket is not connected");
    }
  }

  private final class Input extends InputStream {
    /** What came with the bytes that the program asked for. */
    private ByteBuffer ahead = ByteBuffer.allocate(0);
    private volatile int available;
    private boolean isOver;

    @Override
    public int read() throws IOException {
      byte[] one = new byte[1];
      return read(one, 0, 1) < 0 ? -1 : one[0] & 0xff;
    }

    @Override
    public int read(byte[] bytes, int from, int most) throws IOException {
      stands();
      return direct != null ? directInput.read(bytes, from, most) : read(ByteBuffer.wrap(bytes, from, most));
    }

    private synchronized int read(ByteBuffer to) throws IOException {
      if (isInputShut) {
        return -1;
      }
      if (!ahead.hasRemaining()) {
        if (to.remaining() == 0 || to.remaining() >= AHEAD_BYTES) {
          return receive(to);
        }
        readAhead();
      }
      int count = Math.min(to.remaining(), ahead.remaining());
      to.put(ahead.slice(ahead.position(), count));
      ahead.position(ahead.position() + count);
      available = ahead.remaining();
      return count == 0 ? -1 : count;
    }

    private void readAhead() throws IOException {
      ahead = ahead.capacity() == 0 ? ByteBuffer.allocate(AHEAD_BYTES) : ahead.clear();
      try {
        receive(ahead);
      } finally {
        ahead.flip();
      }
    }

    private int receive(ByteBuffer room) throws IOException {
      if (isOver) {
        return -1;
      }
      int read = managed.pipe.read(room, readTimeoutMs);
      if (read < 0) {
        isOver = true;
        // The JDK's own switch, off unless asked for.
        if (Boolean.getBoolean("com.sun.net.ssl.requireCloseNotify") && !Manager.endedWell(managed.id)) {
          throw new SSLException("closing inbound before receiving peer's close_notify");
        }
      }
      return read;
    }

    /** Returns what is left of a record, as in the JDK. */
    @Override
    public int available() throws IOException {
      if (directInput != null) {
        return directInput.available();
      }
      return isInputShut || isClosed ? 0 : available;
    }

    @Override
    public void close() throws IOException {
      ManagedSocket.this.close();
    }
  }

  private final class Output extends OutputStream {
    @Override
    public void write(int one) throws IOException {
      write(new byte[] {(byte) one}, 0, 1);
    }

    @Override
    public void write(byte[] bytes, int from, int count) throws IOException {
      stands();
      if (direct != null) {
        directOutput.write(bytes, from, count);
      } else {
        managed.pipe.write(ByteBuffer.wrap(bytes, from, count));
      }
    }

    @Override
    public void flush() throws IOException {
      if (directOutput != null) {
        directOutput.flush();
      }
    }

    @Override
    public void close() throws IOException {
      ManagedSocket.this.close();
    }
  }

  @Override
  public void shutdownInput() throws IOException {
    isInputShut = true;
    if (direct != null) {
      direct.shutdownInput();
    }
  }

  @Override
  public void shutdownOutput() throws IOException {
    isOutputShut = true;
    if (direct != null) {
      direct.shutdownOutput();
    } else if (managed != null) {
      managed.pipe.shutdownOutput();
    }
  }

  @Override
  public void close() throws IOException {
    isClosed = true;
    Closeable begun = attempt;
    if (begun != null) {
      closeQuietly(begun);
    }
    if (direct != null) {
      direct.close();
    } else if (managed != null) {
      try {
        managed.pipe.end();
      } catch (IOException gone) {
        // Also if the manager has already gone.
        explain("the server may see the connection cut off: " + gone.getMessage());
      }
    }
  }

  // What it is.

  @Override
  public SSLSession getSession() {
    try {
      stands();
    } catch (IOException error) {
      return ManagedSession.NONE;
    }
    return direct != null ? direct.getSession() : managed.session;
  }

  @Override
  public SSLSession getHandshakeSession() {
    return direct != null ? direct.getHandshakeSession() : handshake;
  }

  @Override
  public String getApplicationProtocol() {
    if (direct != null) {
      return direct.getApplicationProtocol();
    }
    return managed == null ? null : managed.session.protocol;
  }

  @Override
  public String getHandshakeApplicationProtocol() {
    if (direct != null) {
      return direct.getHandshakeApplicationProtocol();
    }
    return handshake instanceof ManagedSession ? ((ManagedSession) handshake).protocol : null;
  }

  @Override
  public boolean isConnected() {
    return server != null || direct != null && direct.isConnected();
  }

  @Override
  public boolean isBound() {
    return isConnected() || direct != null && direct.isBound();
  }

  @Override
  public boolean isClosed() {
    return isClosed || direct != null && direct.isClosed();
  }

  @Override
  public boolean isInputShutdown() {
    return isInputShut;
  }

  @Override
  public boolean isOutputShutdown() {
    return isOutputShut;
  }

  @Override
  public InetAddress getInetAddress() {
    return server == null ? null : server.getAddress();
  }

  @Override
  public int getPort() {
    return server == null ? 0 : server.getPort();
  }

  @Override
  public SocketAddress getRemoteSocketAddress() {
    return server;
  }

  /** The manager's own socket is what has one. */
  @Override
  public InetAddress getLocalAddress() {
    return direct != null ? direct.getLocalAddress() : new InetSocketAddress(0).getAddress();
  }

  @Override
  public int getLocalPort() {
    return direct != null ? direct.getLocalPort() : -1;
  }

  @Override
  public SocketAddress getLocalSocketAddress() {
    return direct != null ? direct.getLocalSocketAddress() : null;
  }

  @Override
  public String toString() {
    return "rejoin.ManagedSocket[" + server + (managed == null ? "" : ", " + managed.session.getProtocol()) + "]";
  }

  // What is wanted of it.

  @Override
  public SSLParameters getSSLParameters() {
    return direct != null ? direct.getSSLParameters() : settings.getSSLParameters();
  }

  @Override
  public void setSSLParameters(SSLParameters wanted) {
    if (direct != null) {
      direct.setSSLParameters(wanted);
    } else {
      settings.setSSLParameters(wanted);
    }
  }

  @Override
  public String[] getSupportedCipherSuites() {
    return settings.getSupportedCipherSuites();
  }

  @Override
  public String[] getEnabledCipherSuites() {
    return getSSLParameters().getCipherSuites();
  }

  @Override
  public void setEnabledCipherSuites(String[] suites) {
    if (direct != null) {
      direct.setEnabledCipherSuites(suites);
    } else {
      settings.setEnabledCipherSuites(suites);
    }
  }

  @Override
  public String[] getSupportedProtocols() {
    return settings.getSupportedProtocols();
  }

  @Override
  public String[] getEnabledProtocols() {
    return getSSLParameters().getProtocols();
  }

  @Override
  public void setEnabledProtocols(String[] protocols) {
    if (direct != null) {
      direct.setEnabledProtocols(protocols);
    } else {
      settings.setEnabledProtocols(protocols);
    }
  }

  @Override
  public void addHandshakeCompletedListener(HandshakeCompletedListener listener) {
    listeners.add(listener);
    if (direct != null) {
      direct.addHandshakeCompletedListener(listener);
    }
  }

  @Override
  public void removeHandshakeCompletedListener(HandshakeCompletedListener listener) {
    listeners.remove(listener);
    if (direct != null) {
      direct.removeHandshakeCompletedListener(listener);
    }
  }

  @Override
  public void setEnableSessionCreation(boolean may) {
    if (direct != null) {
      direct.setEnableSessionCreation(may);
    } else {
      settings.setEnableSessionCreation(may);
    }
  }

  @Override
  public boolean getEnableSessionCreation() {
    return direct != null ? direct.getEnableSessionCreation() : settings.getEnableSessionCreation();
  }

  /** The selector is for servers: here it is kept alone. */
  @Override
  public void setHandshakeApplicationProtocolSelector(BiFunction<SSLSocket, List<String>, String> chosen) {
    selector = chosen;
    if (direct != null) {
      direct.setHandshakeApplicationProtocolSelector(chosen);
    }
  }

  @Override
  public BiFunction<SSLSocket, List<String>, String> getHandshakeApplicationProtocolSelector() {
    return selector;
  }

  @Override
  public void setSoTimeout(int timeoutMs) throws SocketException {
    readTimeoutMs = timeoutMs;
    if (direct != null) {
      direct.setSoTimeout(timeoutMs);
    }
  }

  @Override
  public int getSoTimeout() {
    return readTimeoutMs;
  }
}
