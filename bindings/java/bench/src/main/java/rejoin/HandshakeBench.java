package rejoin;

import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.stream.Collectors;
import org.openjdk.jmh.results.IterationResult;
import org.openjdk.jmh.results.RunResult;
import org.openjdk.jmh.runner.Runner;
import org.openjdk.jmh.runner.RunnerException;
import org.openjdk.jmh.runner.options.ChainedOptionsBuilder;
import org.openjdk.jmh.runner.options.OptionsBuilder;
import org.openjdk.jmh.runner.options.TimeValue;
import org.openjdk.jmh.runner.options.VerboseMode;

/**
 * Runs {@link Handshakes} for {@code rejoin bench handshake --stack jsse}, and prints a line of JSON for each combination.
 * The words: a folder of certificates; {@code --quick} for less; combinations such as {@code 1.3,P-256,false,full}.
 */
public final class HandshakeBench {
  private HandshakeBench() {}

  /** Ends with an exception, and so with exit code 1, if a handshake failed. */
  public static void main(String[] words) throws RunnerException {
    boolean isQuick = Arrays.asList(words).contains("--quick");
    for (String word : words) {
      String[] combination = word.split(",");
      if (combination.length == 4) {
        System.out.println(measure(words[0], combination, isQuick));
      }
    }
  }

  private static String measure(String folder, String[] combination, boolean isQuick) throws RunnerException {
    boolean stateless = combination[3].equals("ticket");
    ChainedOptionsBuilder options = new OptionsBuilder()
        .include("rejoin\\.Handshakes\\.").threads(1).forks(1).shouldFailOnError(true).verbosity(VerboseMode.SILENT)
        .param("tls", combination[0]).param("key", combination[1])
        .param("clientCertificates", combination[2]).param("mode", combination[3])
        .jvmArgsAppend("-Dbench.folder=" + folder, "-Djdk.tls.server.enableSessionTicketExtension=" + stateless,
            "-Djdk.tls.namedGroups=x25519,secp256r1", "-Dbench.warm=" + (isQuick ? 300 : 3000))
        .warmupIterations(1).warmupTime(TimeValue.seconds(1))
        .measurementIterations(isQuick ? 3 : 5).measurementTime(TimeValue.milliseconds(isQuick ? 300 : 1000));
    RunResult result = new Runner(options.build()).runSingle();
    List<IterationResult> iterations = result.getBenchmarkResults().stream()
        .flatMap(fork -> fork.getIterationResults().stream()).toList();
    return String.format(Locale.ROOT, "{\"jdk\":\"%s\",\"batches\":[%s]}", System.getProperty("java.version"),
        iterations.stream().map(HandshakeBench::batch).collect(Collectors.joining(",")));
  }

  private static String batch(IterationResult iteration) {
    return String.format(Locale.ROOT,
        "{\"handshakes\":%d,\"server_ns\":%d,\"client_ns\":%d,\"server_bytes\":%d,\"client_bytes\":%d}",
        count(iteration, "handshakes"), count(iteration, "serverNanos"), count(iteration, "clientNanos"),
        count(iteration, "serverBytes"), count(iteration, "clientBytes"));
  }

  private static long count(IterationResult iteration, String name) {
    return Math.round(iteration.getSecondaryResults().get(name).getScore());
  }
}
