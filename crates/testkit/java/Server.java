// Tells each client whether its session was resumed: java Server.java PKCS12-FILE PROTOCOL

import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.security.KeyStore;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLServerSocket;
import javax.net.ssl.SSLSocket;

public class Server {
    public static void main(String[] arguments) throws Exception {
        char[] password = "rejoin".toCharArray();
        KeyManagerFactory keys = KeyManagerFactory.getInstance("PKIX");
        keys.init(KeyStore.getInstance(new File(arguments[0]), password), password);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(keys.getKeyManagers(), null, null);
        InetAddress loopback = InetAddress.getByName("127.0.0.1");
        SSLServerSocket listener =
            (SSLServerSocket) context.getServerSocketFactory().createServerSocket(0, 50, loopback);
        listener.setEnabledProtocols(new String[] {arguments[1]});
        System.out.println(listener.getLocalPort());
        while (true) {
            SSLSocket client = (SSLSocket) listener.accept();
            new Thread(() -> serve(client)).start();
        }
    }

    private static void serve(SSLSocket client) {
        long accepted = System.currentTimeMillis();
        try (client) {
            var lines = new BufferedReader(
                new InputStreamReader(client.getInputStream(), StandardCharsets.US_ASCII));
            String line = lines.readLine();
            while (line != null && !line.isEmpty()) {
                line = lines.readLine();
            }
            // A session that this handshake made is no older than the connection.
            boolean resumed = client.getSession().getCreationTime() < accepted;
            String answer = "session " + (resumed ? "r" : ".") + "\n";
            client.getOutputStream().write(answer.getBytes(StandardCharsets.US_ASCII));
        } catch (IOException gone) {
            // The client had enough.
        }
    }
}
