package rejoin;

import java.io.IOException;
import java.net.Socket;
import java.net.SocketException;
import java.net.SocketOption;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;
import javax.net.ssl.SSLSocket;

/**
 * The settings of a client's socket that the manager is not told: TCP's options are kept for a socket of the JDK's. The
 * socket's work is in the subclass. Nothing may reach the methods of {@link Socket}, which open a descriptor of their own.
 */
abstract class WantedSocket extends SSLSocket {
  private static final String NO_URGENT_DATA =
      "This method is ineffective, since sending urgent data is not supported by SSLSockets";
  /** The options that sockets of this JVM have. */
  private static final Set<SocketOption<?>> SUPPORTED = supported();

  /** The options that the program chose before there was a socket that takes them, by their names. */
  private final Map<String, Choice> choices = new LinkedHashMap<>();
  /** A socket of the JDK's that takes them. */
  private Socket taker;

  /** An option with its value. */
  private interface Choice {
    void on(Socket socket) throws IOException;
  }

  /** A question about an option. */
  private interface Question<T> {
    T of(Socket socket) throws IOException;
  }

  /** Gives the options to a socket of the JDK's, now and from now on. */
  final void giveOptions(Socket socket) throws IOException {
    synchronized (choices) {
      choose(socket);
      taker = socket;
    }
  }

  private void choose(Socket socket) throws IOException {
    for (Choice choice : choices.values()) {
      choice.on(socket);
    }
  }

  /** Notes an option; {@code isTried} if not every value is one that a socket takes. */
  private void choose(String name, boolean isTried, Choice choice) throws IOException {
    synchronized (choices) {
      ensureOpen();
      if (taker != null) {
        choice.on(taker);
        return;
      }
      if (isTried) {
        try (Socket blank = new Socket()) {
          choice.on(blank);
        }
      }
      choices.put(name, choice);
    }
  }

  /** Asks the JDK's socket, or a new one that has what was chosen. */
  private <T> T ask(Question<T> question) throws IOException {
    synchronized (choices) {
      ensureOpen();
      if (taker != null) {
        return question.of(taker);
      }
      try (Socket blank = new Socket()) {
        choose(blank);
        return question.of(blank);
      }
    }
  }

  private void ensureOpen() throws SocketException {
    if (isClosed()) {
      throw new SocketException("Socket is closed");
    }
  }

  @Override
  public final <T> Socket setOption(SocketOption<T> option, T value) throws IOException {
    choose(option.name(), true, socket -> socket.setOption(option, value));
    return this;
  }

  @Override
  public final <T> T getOption(SocketOption<T> option) throws IOException {
    return ask(socket -> socket.getOption(option));
  }

  @Override
  public final Set<SocketOption<?>> supportedOptions() {
    return SUPPORTED;
  }

  @Override
  public final void setTcpNoDelay(boolean on) throws SocketException {
    set("TCP_NODELAY", false, socket -> socket.setTcpNoDelay(on));
  }

  @Override
  public final boolean getTcpNoDelay() throws SocketException {
    return get(Socket::getTcpNoDelay);
  }

  @Override
  public final void setKeepAlive(boolean on) throws SocketException {
    set("SO_KEEPALIVE", false, socket -> socket.setKeepAlive(on));
  }

  @Override
  public final boolean getKeepAlive() throws SocketException {
    return get(Socket::getKeepAlive);
  }

  @Override
  public final void setReuseAddress(boolean on) throws SocketException {
    set("SO_REUSEADDR", false, socket -> socket.setReuseAddress(on));
  }

  @Override
  public final boolean getReuseAddress() throws SocketException {
    return get(Socket::getReuseAddress);
  }

  @Override
  public final void setSoLinger(boolean on, int seconds) throws SocketException {
    set("SO_LINGER", true, socket -> socket.setSoLinger(on, seconds));
  }

  @Override
  public final int getSoLinger() throws SocketException {
    return get(Socket::getSoLinger);
  }

  @Override
  public final void setSendBufferSize(int bytes) throws SocketException {
    set("SO_SNDBUF", true, socket -> socket.setSendBufferSize(bytes));
  }

  @Override
  public final int getSendBufferSize() throws SocketException {
    return get(Socket::getSendBufferSize);
  }

  @Override
  public final void setReceiveBufferSize(int bytes) throws SocketException {
    set("SO_RCVBUF", true, socket -> socket.setReceiveBufferSize(bytes));
  }

  @Override
  public final int getReceiveBufferSize() throws SocketException {
    return get(Socket::getReceiveBufferSize);
  }

  @Override
  public final void setTrafficClass(int value) throws SocketException {
    set("IP_TOS", true, socket -> socket.setTrafficClass(value));
  }

  @Override
  public final int getTrafficClass() throws SocketException {
    return get(Socket::getTrafficClass);
  }

  /** TLS has no urgent data, as the JDK says. */
  @Override
  public final void sendUrgentData(int data) throws SocketException {
    throw new SocketException("This method is not supported by SSLSockets");
  }

  @Override
  public final void setOOBInline(boolean on) throws SocketException {
    throw new SocketException(NO_URGENT_DATA);
  }

  @Override
  public final boolean getOOBInline() throws SocketException {
    throw new SocketException(NO_URGENT_DATA);
  }

  @Override
  public final void setUseClientMode(boolean client) {
    if (!client) {
      throw new IllegalArgumentException("rejoin serves clients: use SunJSSE's context for servers");
    }
  }

  @Override
  public final boolean getUseClientMode() {
    return true;
  }

  @Override
  public final void setNeedClientAuth(boolean need) {}

  @Override
  public final boolean getNeedClientAuth() {
    return false;
  }

  @Override
  public final void setWantClientAuth(boolean want) {}

  @Override
  public final boolean getWantClientAuth() {
    return false;
  }

  private void set(String name, boolean isTried, Choice choice) throws SocketException {
    try {
      choose(name, isTried, choice);
    } catch (IOException error) {
      throw socketException(error);
    }
  }

  private <T> T get(Question<T> question) throws SocketException {
    try {
      return ask(question);
    } catch (IOException error) {
      throw socketException(error);
    }
  }

  /** Makes what the older methods declare. */
  private static SocketException socketException(IOException error) {
    return error instanceof SocketException told
        ? told
        : (SocketException) new SocketException(error.getMessage()).initCause(error);
  }

  private static Set<SocketOption<?>> supported() {
    try (Socket blank = new Socket()) {
      return blank.supportedOptions();
    } catch (IOException closing) {
      return Set.of();
    }
  }
}
