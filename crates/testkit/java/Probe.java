import java.util.Arrays;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLSocket;

/**
 * A program that knows nothing of Rejoin, and finds out what its sockets can do: says what they refuse, and what they have
 * after it.
 */
public final class Probe {
  private interface Act {
    void run() throws Exception;
  }

  public static void main(String[] words) throws Exception {
    int port = Integer.parseInt(words[0]);
    try (SSLSocket socket = open(port)) {
      refused("a suite", () -> socket.setEnabledCipherSuites(new String[] {"TLS_FUTURE", "TLS_AES_128_GCM_SHA256"}));
      refused("no suites", () -> socket.setEnabledCipherSuites(null));
      refused("a version", () -> socket.setEnabledProtocols(new String[] {"TLSv1.4", "TLSv1.2"}));
      refused("no versions", () -> socket.setEnabledProtocols(null));
      SSLParameters parameters = socket.getSSLParameters();
      parameters.setProtocols(new String[] {"TLSv1.4"});
      refused("parameters", () -> socket.setSSLParameters(parameters));
      socket.getSSLParameters().setEndpointIdentificationAlgorithm("HTTPS");
      socket.getSSLParameters().setProtocols(new String[] {"TLSv1.2"});
      System.out.println("versions: " + Arrays.toString(socket.getEnabledProtocols()));
      System.out.println("identification: " + socket.getSSLParameters().getEndpointIdentificationAlgorithm());
      System.out.println("suites: " + Arrays.toString(socket.getEnabledCipherSuites()));
      System.out.println("all suites: " + Arrays.toString(socket.getSupportedCipherSuites()));
      System.out.println("selector: " + socket.getHandshakeApplicationProtocolSelector());
      socket.setHandshakeApplicationProtocolSelector((server, protocols) -> null);
      System.out.println("has it: " + (socket.getHandshakeApplicationProtocolSelector() != null));
      refused("the handshake", socket::startHandshake);
    }
    try (SSLSocket socket = open(port)) {
      socket.setEnabledProtocols(new String[] {"TLSv1.3"});
      SSLParameters parameters = socket.getSSLParameters();
      parameters.setEndpointIdentificationAlgorithm("HTTPS");
      socket.setSSLParameters(parameters);
      // What parameters do not say stays as it was.
      socket.setSSLParameters(new SSLParameters());
      System.out.println("versions: " + Arrays.toString(socket.getEnabledProtocols()));
      System.out.println("identification: " + socket.getSSLParameters().getEndpointIdentificationAlgorithm());
    }
    try (SSLSocket socket = open(port)) {
      socket.setEnableSessionCreation(false);
      System.out.println("creates sessions: " + socket.getEnableSessionCreation());
      refused("the handshake", socket::startHandshake);
    }
  }

  private static SSLSocket open(int port) throws Exception {
    SSLContext context = SSLContext.getInstance("TLS");
    context.init(null, null, null);
    SSLSocket socket = (SSLSocket) context.getSocketFactory().createSocket("localhost", port);
    socket.setSoTimeout(20_000);
    return socket;
  }

  private static void refused(String what, Act act) {
    try {
      act.run();
      System.out.println(what + ": not refused");
    } catch (Exception error) {
      System.out.println(what + ": " + error);
    }
  }
}
