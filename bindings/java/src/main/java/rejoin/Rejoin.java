package rejoin;

import java.security.Provider;
import java.security.Security;

/**
 * Serves {@code SSLContext} for clients: TLS connections that {@code rejoin manager} makes, so that all programs of this
 * machine share sessions. The JDK's own provider does everything else, as if this one were not there.
 *
 * <p>{@code java -javaagent:rejoin.jar …} puts it first in a program that is not changed; a program may do so itself:
 * {@code Security.insertProviderAt(new Rejoin(), 1)}.
 */
public final class Rejoin extends Provider {
  private static final long serialVersionUID = 1;

  /** Found by its name, {@code Rejoin}, in {@code java.security}, too. */
  public Rejoin() {
    super("Rejoin", "0.1", "TLS sessions shared through rejoin manager");
    put("SSLContext.TLS", Context.class.getName());
    put("SSLContext.TLSv1.2", Context.Tls12.class.getName());
    put("SSLContext.TLSv1.3", Context.Tls13.class.getName());
    put("SSLContext.Default", Context.Default.class.getName());
  }

  /**
   * Puts the provider first, before the program runs.
   *
   * @param arguments none
   */
  public static void premain(String arguments) {
    Security.insertProviderAt(new Rejoin(), 1);
  }
}
