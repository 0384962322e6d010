package rejoin;

import java.net.Proxy;
import java.net.ProxySelector;
import java.net.URI;
import java.net.URISyntaxException;

/** The proxies of a program: the manager connects to servers itself, and would bypass them. */
final class Proxies {
  /** The class of {@code java.net.http} that holds the engine of a connection through {@code CONNECT}. */
  private static final String TUNNEL = "jdk.internal.net.http.AsyncSSLTunnelConnection";

  private Proxies() {}

  /** Returns true if a proxy is in use for this server, as far as the stack or the usual selector show. */
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
