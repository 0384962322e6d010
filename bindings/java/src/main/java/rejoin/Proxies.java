package rejoin;

import java.net.InetSocketAddress;
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
    return isTunnel || isUsual("https", host, port, "/");
  }

  /** Returns true if the JDK's own sockets would reach this server through a proxy. */
  static boolean areBefore(InetSocketAddress server) {
    return isUsual("socket", server.getHostString(), server.getPort(), "");
  }

  private static boolean isUsual(String scheme, String host, int port, String path) {
    ProxySelector selector = ProxySelector.getDefault();
    try {
      // As a whole: the parts may have no underscore, which names of machines have.
      URI server = new URI(scheme + "://" + (host.contains(":") ? "[" + host + "]" : host) + ":" + port + path);
      return selector != null && selector.select(server).stream().anyMatch(way -> way.type() != Proxy.Type.DIRECT);
    } catch (URISyntaxException | RuntimeException unknown) {
      // Also where a program's own selector gives null.
      return true;
    }
  }
}
