package rejoin;

import java.net.Proxy;
import java.net.ProxySelector;
import java.net.URI;
import java.net.URISyntaxException;

/** Proxies that a program goes through: the manager, which calls a server itself, would go past them. */
final class Proxies {
  /** Of {@code java.net.http}: what holds the engine of a connection through {@code CONNECT}. */
  private static final String TUNNEL = "jdk.internal.net.http.AsyncSSLTunnelConnection";

  private Proxies() {}

  /** Whether there is one, as far as who makes an engine for this server shows it. */
  static boolean areBetween(String host, int port) {
    boolean isTunnel = StackWalker.getInstance()
        .walk(callers -> callers.limit(16).anyMatch(caller -> TUNNEL.equals(caller.getClassName())));
    return isTunnel || isUsual(host, port);
  }

  private static boolean isUsual(String host, int port) {
    ProxySelector selector = ProxySelector.getDefault();
    try {
      URI server = new URI("https", null, host, port, "/", null, null);
      return selector != null && selector.select(server).stream().anyMatch(way -> way.type() != Proxy.Type.DIRECT);
    } catch (URISyntaxException | RuntimeException unknown) {
      // Also where a program's own selector gives null.
      return true;
    }
  }
}
