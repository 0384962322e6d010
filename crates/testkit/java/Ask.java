import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.security.MessageDigest;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManager;

/**
 * A program that knows nothing of Rejoin, on {@code java.net.http}: says what came of a URL. Further words: {@code 1.1}
 * for that version of HTTP; {@code at-once=N} for so many requests, each on a connection of its own where that is so;
 * {@code in-turn=N} for so many one after the other, each by a client of its own; {@code put=BYTES} for a body;
 * {@code no} to believe no server; {@code revocation} to ask whether certificates are revoked.
 */
public final class Ask {
  public static void main(String[] words) {
    try {
      List<String> told = List.of(words);
      HttpClient.Builder builder = HttpClient.newBuilder().connectTimeout(Duration.ofSeconds(20));
      if (told.contains("1.1")) {
        builder.version(HttpClient.Version.HTTP_1_1);
      }
      if (told.contains("no")) {
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(null, new TrustManager[] {new Doubter()}, null);
        builder.sslContext(context);
      }
      if (told.contains("revocation")) {
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(null, Visit.askingForRevocation(), null);
        builder.sslContext(context);
      }
      HttpRequest.Builder request = HttpRequest.newBuilder(URI.create(words[0])).timeout(Duration.ofSeconds(60));
      int bytes = number(told, "put=", 0);
      if (bytes > 0) {
        request.PUT(BodyPublishers.ofByteArray(new byte[bytes]));
      }
      HttpClient client = builder.build();
      if (number(told, "at-once=", 0) > 0) {
        System.out.println(atOnce(client, request.build(), number(told, "at-once=", 0)));
      } else if (number(told, "in-turn=", 0) > 0) {
        System.out.println(inTurn(builder, request.build(), number(told, "in-turn=", 0)));
      } else {
        System.out.println(said(client.send(request.build(), BodyHandlers.ofByteArray())));
      }
    } catch (Exception error) {
      System.out.println(error);
      System.exit(1);
    }
    // The client has threads of its own.
    System.exit(0);
  }

  /** How many were answered. */
  private static String atOnce(HttpClient client, HttpRequest request, int count) throws Exception {
    List<CompletableFuture<HttpResponse<byte[]>>> asked = new ArrayList<>();
    for (int i = 0; i < count; i++) {
      asked.add(client.sendAsync(request, BodyHandlers.ofByteArray()));
    }
    int answered = 0;
    for (CompletableFuture<HttpResponse<byte[]>> one : asked) {
      answered += one.get().statusCode() == 200 ? 1 : 0;
    }
    return answered + " of " + count;
  }

  private static String inTurn(HttpClient.Builder builder, HttpRequest request, int count) throws Exception {
    int answered = 0;
    for (int i = 0; i < count; i++) {
      // Connections are their client's.
      try {
        answered += builder.build().send(request, BodyHandlers.ofByteArray()).statusCode() == 200 ? 1 : 0;
      } catch (IOException failed) {
        System.err.println(failed);
      }
    }
    return answered + " of " + count;
  }

  private static String said(HttpResponse<byte[]> response) throws Exception {
    byte[] body = response.body();
    String text = new String(body).strip();
    if (body.length > 1_000) {
      byte[] digest = MessageDigest.getInstance("SHA-256").digest(body);
      text = body.length + " bytes, " + HexFormat.of().formatHex(digest);
    }
    String peer = response.sslSession().orElseThrow().getPeerPrincipal().getName();
    return response.statusCode() + "; " + response.version() + "; " + text + "; " + peer;
  }

  private static int number(List<String> words, String name, int otherwise) {
    return words.stream().filter(word -> word.startsWith(name)).findFirst()
        .map(word -> Integer.parseInt(word.substring(name.length()))).orElse(otherwise);
  }
}
