// Makes connections of Java's TLS, and tells for each what its client says: java Stacks.java PKCS12-FILE
//
// Each connection is a line of JSON: the ports of its server and its client, and if it was resumed.

import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.security.KeyStore;
import java.security.Security;
import java.security.cert.X509Certificate;
import java.util.List;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SNIHostName;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLServerSocket;
import javax.net.ssl.SSLSocket;
import javax.net.ssl.TrustManager;
import javax.net.ssl.X509TrustManager;

public class Stacks {
    private static final String NAME = "a.example";
    // Visits of a client: the first is full, because it begins with no session.
    private static final int CLIENTS = 3;
    private static final int VISITS = 4;

    public static void main(String[] arguments) throws Exception {
        // Versions before TLS 1.2 are disabled there.
        Security.setProperty("jdk.tls.disabledAlgorithms", "");
        char[] password = "rejoin".toCharArray();
        KeyManagerFactory keys = KeyManagerFactory.getInstance("PKIX");
        keys.init(KeyStore.getInstance(new File(arguments[0]), password), password);
        for (String version : new String[] {"TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3"}) {
            for (boolean tickets : version.equals("TLSv1.3") ? new boolean[] {true} : new boolean[] {true, false}) {
                // Read once, as a context is made.
                System.setProperty("jdk.tls.server.enableSessionTicketExtension", Boolean.toString(tickets));
                visit(keys, version);
            }
        }
        System.exit(0);
    }

    private static void visit(KeyManagerFactory keys, String version) throws Exception {
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(keys.getKeyManagers(), null, null);
        InetAddress loopback = InetAddress.getByName("127.0.0.1");
        SSLServerSocket listener =
            (SSLServerSocket) context.getServerSocketFactory().createServerSocket(0, 50, loopback);
        listener.setEnabledProtocols(new String[] {version});
        Thread server = new Thread(() -> accept(listener));
        server.setDaemon(true);
        server.start();
        for (int client = 0; client < CLIENTS; client++) {
            SSLContext newcomer = SSLContext.getInstance("TLS");
            newcomer.init(null, new TrustManager[] {new Trusting()}, null);
            for (int visit = 0; visit < VISITS; visit++) {
                call(newcomer, listener.getLocalPort(), version);
            }
        }
    }

    private static void accept(SSLServerSocket listener) {
        while (true) {
            try (SSLSocket client = (SSLSocket) listener.accept()) {
                String line = lines(client).readLine();
                client.getOutputStream().write((line + "\n").getBytes(StandardCharsets.US_ASCII));
            } catch (IOException gone) {
                // The client had enough.
            }
        }
    }

    private static void call(SSLContext context, int port, String version) throws Exception {
        // Sessions tell the millisecond in which they were made.
        Thread.sleep(5);
        long begin = System.currentTimeMillis();
        try (SSLSocket client = (SSLSocket) context.getSocketFactory().createSocket("127.0.0.1", port)) {
            SSLParameters parameters = client.getSSLParameters();
            parameters.setServerNames(List.of(new SNIHostName(NAME)));
            parameters.setProtocols(new String[] {version});
            client.setSSLParameters(parameters);
            client.getOutputStream().write("question\n".getBytes(StandardCharsets.US_ASCII));
            if (lines(client).readLine() == null) {
                throw new IOException("no answer");
            }
            boolean resumed = client.getSession().getCreationTime() < begin;
            System.out.printf(
                "{\"server\":%d,\"client\":%d,\"resumed\":%b}%n", port, client.getLocalPort(), resumed);
        }
    }

    private static BufferedReader lines(SSLSocket socket) throws IOException {
        return new BufferedReader(new InputStreamReader(socket.getInputStream(), StandardCharsets.US_ASCII));
    }

    private static final class Trusting implements X509TrustManager {
        @Override
        public void checkClientTrusted(X509Certificate[] chain, String kind) {}

        @Override
        public void checkServerTrusted(X509Certificate[] chain, String kind) {}

        @Override
        public X509Certificate[] getAcceptedIssuers() {
            return new X509Certificate[0];
        }
    }
}
