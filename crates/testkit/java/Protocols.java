import java.util.Arrays;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLSocket;

/** A program that knows nothing of Rejoin, and asks for contexts by each of their names. Says what they offer. */
public final class Protocols {
  public static void main(String[] words) throws Exception {
    for (String name : new String[] {"Default", "TLS", "TLSv1.2", "TLSv1.3"}) {
      SSLContext context = SSLContext.getInstance(name);
      if (!name.equals("Default")) {
        context.init(null, null, null);
      }
      System.out.println(name + ": " + said(context.getDefaultSSLParameters()));
      System.out.println("supports " + said(context.getSupportedSSLParameters()));
      SSLEngine engine = context.createSSLEngine("localhost", 443);
      engine.setUseClientMode(true);
      System.out.println("engine: " + said(engine.getSSLParameters()));
      try (SSLSocket socket = (SSLSocket) context.getSocketFactory().createSocket()) {
        System.out.println("socket: " + said(socket.getSSLParameters()));
      }
    }
  }

  private static String said(SSLParameters parameters) {
    return Arrays.toString(parameters.getProtocols()) + ", " + parameters.getCipherSuites().length + " suites";
  }
}
