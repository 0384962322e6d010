package rejoin;

import java.io.IOException;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Locale;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.openjdk.jmh.profile.GCProfiler;
import org.openjdk.jmh.results.RunResult;
import org.openjdk.jmh.runner.Runner;
import org.openjdk.jmh.runner.RunnerException;
import org.openjdk.jmh.runner.options.ChainedOptionsBuilder;
import org.openjdk.jmh.runner.options.OptionsBuilder;
import org.openjdk.jmh.runner.options.TimeValue;
import org.openjdk.jmh.util.Statistics;

/**
 * Runs a manager and servers on loopback, and what is measured with them: {@code make bench-java}. The words: the
 * program {@code rejoin}; {@code --quick} for less; {@code --only certificate} or {@code connection}.
 */
public final class Bench implements AutoCloseable {
  private static final List<String> VERSIONS = List.of("TLSv1.2", "TLSv1.3");
  /** Server, issuer, authority; keys of RSA, as most have. */
  private static final String CERTIFICATES = """
      set -e; cd "$1"
      key() { openssl genrsa -out "$1.key" 2048 && openssl req -new -key "$1.key" -subj "/CN=$2" -out "$1.csr"; }
      sign() { openssl x509 -req -in "$1.csr" -days 30 -extfile "$1.ext" -out "$1.pem" "${@:2}"; }
      echo "basicConstraints=critical,CA:true" | tee authority.ext > issuer.ext
      echo "subjectAltName=DNS:localhost" > server.ext
      key authority "an authority"; key issuer "an issuer"; key server localhost
      sign authority -signkey authority.key
      sign issuer -CA authority.pem -CAkey authority.key -CAcreateserial
      sign server -CA issuer.pem -CAkey issuer.key -set_serial 0x7bcdef0123456789
      cat server.pem issuer.pem > chain.pem
      keytool -importcert -noprompt -alias authority -file authority.pem -storetype PKCS12 -storepass changeit \\
        -keystore trust
      """;
  private static final String NGINX = """
      daemon off; master_process off; pid FOLDER/nginx.pid; error_log FOLDER/error.log;
      events { worker_connections 4096; }
      http {
        access_log off; keepalive_timeout 0; ssl_protocols VERSION; ssl_session_cache shared:tls:8m;
        client_body_temp_path FOLDER/body; proxy_temp_path FOLDER/proxy; fastcgi_temp_path FOLDER/fastcgi;
        uwsgi_temp_path FOLDER/uwsgi; scgi_temp_path FOLDER/scgi;
        server { listen 127.0.0.1:PORT ssl; ssl_certificate FOLDER/chain.pem; ssl_certificate_key FOLDER/server.key;
                 return 200 "session $ssl_session_reused\\n"; }
      }
      """;

  private final Path folder = Files.createTempDirectory("rejoin-bench");
  private final List<Process> processes = new ArrayList<>();
  private final List<String> told = new ArrayList<>();

  private Bench(String rejoin) throws IOException, InterruptedException {
    Runtime.getRuntime().addShutdownHook(new Thread(this::close));
    Path log = folder.resolve("certificates.log");
    Process made = new ProcessBuilder("bash", "-c", CERTIFICATES, "bash", folder.toString())
        .redirectErrorStream(true).redirectOutput(log.toFile()).start();
    if (made.waitFor() != 0) {
      throw new IOException("no certificates: " + Files.readString(log));
    }
    for (String version : VERSIONS) {
      serve(version);
    }
    Path settings = folder.resolve("manager.toml");
    Files.writeString(settings, "system_bundle = \"" + folder.resolve("authority.pem") + "\"\n");
    Path socket = folder.resolve("m.sock");
    start(rejoin, "manager", "--socket", socket.toString(), "--settings", settings.toString());
    while (!Files.exists(socket)) {
      Thread.sleep(20);
    }
    told.add("-Drejoin.socket=" + socket);
    told.add("-Dbench.certificate=" + folder.resolve("server.pem"));
    told.add("-Djavax.net.ssl.trustStore=" + folder.resolve("trust"));
    told.add("-Djavax.net.ssl.trustStorePassword=changeit");
  }

  /** Prints a table. */
  public static void main(String[] words) throws Exception {
    if (words.length == 0) {
      System.err.println("bench: the path of rejoin is missing");
      System.exit(2);
    }
    List<String> told = List.of(words);
    int only = told.indexOf("--only") + 1;
    String what = only > 0 && only < words.length ? words[only] : "";
    try (Bench bench = new Bench(words[0])) {
      System.out.println(table(bench.measure(what, told.contains("--quick"))));
    }
  }

  private Collection<RunResult> measure(String what, boolean isQuick) throws RunnerException {
    ChainedOptionsBuilder options = new OptionsBuilder()
        .include("rejoin\\.(Resumption|Interning)\\." + what).addProfiler(GCProfiler.class).threads(1)
        .jvmArgsAppend(told.toArray(new String[0])).shouldFailOnError(true)
        .forks(isQuick ? 1 : 3)
        .warmupIterations(isQuick ? 2 : 3).warmupTime(TimeValue.seconds(isQuick ? 1 : 3))
        .measurementIterations(isQuick ? 3 : 5).measurementTime(TimeValue.seconds(isQuick ? 1 : 3));
    return new Runner(options.build()).run();
  }

  private void serve(String version) throws IOException, InterruptedException {
    Path own = Files.createDirectory(folder.resolve(version));
    for (String file : List.of("chain.pem", "server.key")) {
      Files.copy(folder.resolve(file), own.resolve(file));
    }
    int port;
    try (ServerSocket free = new ServerSocket(0)) {
      port = free.getLocalPort();
    }
    String text = NGINX.replace("FOLDER", own.toString()).replace("VERSION", version);
    Path configuration = own.resolve("nginx.conf");
    Files.writeString(configuration, text.replace("PORT", String.valueOf(port)));
    Process nginx = start("nginx", "-c", configuration.toString());
    while (!listens(port)) {
      if (!nginx.isAlive()) {
        throw new IOException("nginx does not start");
      }
      Thread.sleep(20);
    }
    told.add("-Dbench." + version + "=" + port);
  }

  private static boolean listens(int port) {
    try (Socket socket = new Socket("127.0.0.1", port)) {
      return socket.isConnected();
    } catch (IOException nobody) {
      return false;
    }
  }

  private Process start(String... command) throws IOException {
    Process process = new ProcessBuilder(command).redirectErrorStream(true)
        .redirectOutput(ProcessBuilder.Redirect.DISCARD).start();
    processes.add(process);
    return process;
  }

  /** Medians of the iterations, and bytes of an operation. */
  private static String table(Collection<RunResult> results) {
    StringBuilder table = new StringBuilder("\n| | operations/s, median (least to most) | bytes allocated each |\n");
    table.append("|---|---|---|\n");
    for (RunResult result : results) {
      Statistics throughput = result.getPrimaryResult().getStatistics();
      Statistics allocated = result.getSecondaryResults().get("gc.alloc.rate.norm").getStatistics();
      String name = result.getPrimaryResult().getLabel();
      String parameters = result.getParams().getParamsKeys().stream()
          .map(key -> key + " " + result.getParams().getParam(key)).collect(Collectors.joining(", "));
      table.append(String.format(Locale.ROOT, "| %s: %s | %,.0f (%,.0f to %,.0f) | %,.0f |%n", name, parameters,
          throughput.getPercentile(50), throughput.getMin(), throughput.getMax(), allocated.getPercentile(50)));
    }
    return table.toString();
  }

  @Override
  public void close() {
    processes.forEach(Process::destroy);
    try (Stream<Path> files = Files.walk(folder)) {
      files.sorted((one, other) -> other.compareTo(one)).forEach(file -> file.toFile().delete());
    } catch (IOException gone) {
      // Closed twice.
    }
  }
}
