package rejoin;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.util.Base64;
import java.util.HexFormat;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.Param;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.State;

/** A certificate as the manager tells it, one after the other of so many. */
@State(Scope.Benchmark)
public class Interning {
  /** More than are kept come back when they have gone. */
  @Param({"1", "10000"})
  public int distinct;

  /** Or each decoded anew. */
  @Param({"false", "true"})
  public boolean interns;

  private String[] fingerprints;
  private String[] told;
  private int next;

  /** Made by JMH. */
  public Interning() {}

  /** Makes many certificates of one, which differ in their serial number. */
  @Setup
  public void setUp() throws GeneralSecurityException, IOException {
    System.setProperty("rejoin.intern", String.valueOf(interns));
    try (var pem = Files.newInputStream(Path.of(System.getProperty("bench.certificate")))) {
      X509Certificate one = (X509Certificate) CertificateFactory.getInstance("X.509").generateCertificate(pem);
      byte[] der = one.getEncoded();
      int serial = indexOf(der, one.getSerialNumber().toByteArray());
      fingerprints = new String[distinct];
      told = new String[distinct];
      for (int i = 0; i < distinct; i++) {
        der[serial + 2] = (byte) (i >> 8);
        der[serial + 3] = (byte) i;
        fingerprints[i] = HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(der));
        told[i] = Base64.getEncoder().encodeToString(der);
      }
    }
  }

  /** The next one. */
  @Benchmark
  public X509Certificate certificate() throws GeneralSecurityException {
    next = (next + 1) % distinct;
    return Certificates.OF_THIS_PROCESS.decode(fingerprints[next], told[next]);
  }

  private static int indexOf(byte[] all, byte[] part) {
    int at = 0;
    while (!java.util.Arrays.equals(all, at, at + part.length, part, 0, part.length)) {
      at++;
    }
    return at;
  }
}
