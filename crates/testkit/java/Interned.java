package rejoin;

import java.io.ByteArrayInputStream;
import java.io.InputStream;
import java.lang.reflect.Field;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.security.cert.CertificateException;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.BrokenBarrierException;
import java.util.concurrent.Callable;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * Says whether the provider decodes a server's certificates once; with a second word, whether it does so each time. The
 * first word is the file of a certificate, in PEM.
 */
public final class Interned {
  /** More than are kept. */
  private static final int DISTINCT = 1_100;
  /** More than the JDK keeps itself. */
  private static final int OTHERS = 1_000;
  private static final int THREADS = 8;
  private static final int AT_ONCE = 100;
  private static final int ROUNDS = 10;

  private final List<Told> distinct = new ArrayList<>();
  private final List<Told> others = new ArrayList<>();

  /** A certificate as the manager tells it. */
  private record Told(String sha256, byte[] der) {
    String base64() {
      return Base64.getEncoder().encodeToString(der);
    }

    List<?> whole() {
      return List.of(Map.of("sha256", sha256, "der", base64()));
    }

    List<?> named() {
      return List.of(Map.of("sha256", sha256));
    }
  }

  public static void main(String[] words) {
    try {
      Interned interned = new Interned(Path.of(words[0]));
      if (words.length > 1) {
        interned.eachIsDecodedAnew();
        System.out.println("decoded anew");
      } else {
        interned.eachIsDecodedOnce();
        interned.knownOnesNeedNotBeSent();
        interned.wrongNamesAreNotKept();
        interned.certificatesAreBounded();
        interned.placesAreBounded();
        interned.threadsAgree();
        System.out.println("decoded once");
      }
    } catch (Exception error) {
      System.out.println(error);
      System.exit(1);
    }
  }

  /** Makes many certificates of one, which differ in the signature: nobody verifies it here. */
  private Interned(Path pem) throws Exception {
    byte[] der;
    try (InputStream file = Files.newInputStream(pem)) {
      der = CertificateFactory.getInstance("X.509").generateCertificate(file).getEncoded();
    }
    for (int i = 0; i < DISTINCT + OTHERS; i++) {
      byte[] one = der.clone();
      one[one.length - 2] = (byte) (i >> 8);
      one[one.length - 1] = (byte) i;
      String sha256 = HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(one));
      (i < DISTINCT ? distinct : others).add(new Told(sha256, one));
    }
    X509Certificate first = decode(distinct.get(0));
    forget();
    check(first != decode(distinct.get(0)), "the JDK gives the same object again: this test says nothing");
  }

  private void eachIsDecodedOnce() throws CertificateException {
    Certificates certificates = new Certificates();
    Told one = distinct.get(0);
    X509Certificate first = chain(certificates, "a:1", one.whole());
    check(Arrays.equals(first.getEncoded(), one.der), "a chain is another one than was told");
    forget();
    check(chain(certificates, "a:1", one.whole()) == first, "told twice, it is decoded twice");
    check(chain(certificates, "b:1", one.whole()) == first, "told of another place, it is decoded again");
    check(certificates.decode(one.sha256, one.base64()) == first, "alone, it is decoded again");
    check(certificates.decode(one.sha256, null) == first, "without its bytes, it is another");
    Told other = distinct.get(1);
    X509Certificate second = certificates.decode(other.sha256, other.base64());
    check(Arrays.equals(second.getEncoded(), other.der), "another certificate is the same object");
  }

  private void knownOnesNeedNotBeSent() throws CertificateException {
    Certificates certificates = new Certificates();
    Told one = distinct.get(0);
    check(certificates.known("a:1").isEmpty(), "a certificate is known that nobody told");
    X509Certificate first = chain(certificates, "a:1", one.whole());
    Map<String, X509Certificate> known = certificates.known("a:1");
    check(known.keySet().equals(Set.of(one.sha256)), "what was told of a place is not what is known");
    check(known.get(one.sha256) == first, "known is another object than was told");
    check(certificates.known("b:1").isEmpty(), "a place knows what was told of another");
    forget();
    check(certificates.chain("a:1", one.named(), known)[0] == first, "a known one is another object");
    // Whatever became of it since.
    Certificates empty = new Certificates();
    check(empty.chain("a:1", one.named(), known)[0] == first, "what the request named is not kept");
    check(empty.known("a:1").isEmpty(), "what was never sent is known");
    try {
      certificates.chain("c:1", distinct.get(1).named(), known);
    } catch (IllegalArgumentException missing) {
      check(certificates.known("c:1").isEmpty(), "a chain is known that was not told whole");
      return;
    }
    throw new IllegalStateException("a chain lacks a certificate, and is taken");
  }

  private void wrongNamesAreNotKept() throws CertificateException {
    Certificates certificates = new Certificates();
    String wrong = distinct.get(2).sha256;
    for (Told one : distinct.subList(0, 2)) {
      X509Certificate decoded = certificates.decode(wrong, one.base64());
      check(Arrays.equals(decoded.getEncoded(), one.der), "under a wrong fingerprint comes another certificate");
    }
    Map<String, String> told = Map.of("sha256", wrong, "der", distinct.get(0).base64());
    byte[] shown = chain(certificates, "a:1", List.of(told)).getEncoded();
    check(Arrays.equals(shown, distinct.get(0).der), "under a wrong fingerprint a chain is another one");
    check(certificates.known("a:1").isEmpty(), "under a wrong fingerprint it is known");
    check(kept(certificates, "decoded").isEmpty(), "under a wrong fingerprint it is kept");
  }

  private void certificatesAreBounded() throws CertificateException {
    Certificates certificates = new Certificates();
    int most = Certificates.MOST_CERTIFICATES;
    check(most < DISTINCT, "too few to exceed the bound");
    // None is collected.
    X509Certificate[] held = new X509Certificate[DISTINCT];
    for (int i = 0; i < DISTINCT; i++) {
      held[i] = certificates.decode(distinct.get(i).sha256, distinct.get(i).base64());
      int kept = kept(certificates, "decoded").size();
      check(kept == Math.min(i + 1, most), kept + " certificates are kept after " + (i + 1));
      // The second stays in use.
      certificates.decode(distinct.get(1).sha256, distinct.get(1).base64());
    }
    forget();
    for (int i = DISTINCT - most + 1; i < DISTINCT; i++) {
      Told one = distinct.get(i);
      check(certificates.decode(one.sha256, one.base64()) == held[i], "one of the last is gone: " + i);
    }
    Told used = distinct.get(1);
    check(certificates.decode(used.sha256, used.base64()) == held[1], "one that was used is gone");
    for (int i : new int[] {0, 2, DISTINCT - most}) {
      Told one = distinct.get(i);
      X509Certificate again = certificates.decode(one.sha256, one.base64());
      check(again != held[i] && again.equals(held[i]), "one of the first is still there: " + i);
    }
    check(kept(certificates, "decoded").size() == most, "the bound is exceeded");
  }

  private void placesAreBounded() throws CertificateException {
    Certificates certificates = new Certificates();
    int most = Certificates.MOST_PLACES;
    int places = most + 76;
    Told one = distinct.get(0);
    X509Certificate held = certificates.decode(one.sha256, one.base64());
    for (int i = 0; i < places; i++) {
      check(chain(certificates, "host:" + i, one.whole()) == held, "it is another at each place");
      int kept = kept(certificates, "chains").size();
      check(kept == Math.min(i + 1, most), kept + " places are kept after " + (i + 1));
    }
    check(certificates.known("host:0").isEmpty(), "the first place is still there");
    check(certificates.known("host:" + (places - most - 1)).isEmpty(), "one place too many is still there");
    for (int i : new int[] {places - most, places - 1}) {
      check(certificates.known("host:" + i).get(one.sha256) == held, "one of the last places is gone: " + i);
    }
  }

  private void threadsAgree() throws Exception {
    ExecutorService threads = Executors.newFixedThreadPool(THREADS);
    try {
      for (int round = 0; round < ROUNDS; round++) {
        forget();
        Certificates certificates = new Certificates();
        CyclicBarrier together = new CyclicBarrier(THREADS, this::forgetQuietly);
        List<Future<List<X509Certificate>>> seen = new ArrayList<>();
        Callable<List<X509Certificate>> thread = () -> look(certificates, together);
        for (int i = 0; i < THREADS; i++) {
          seen.add(threads.submit(thread));
        }
        List<X509Certificate> first = seen.get(0).get();
        for (Future<List<X509Certificate>> one : seen) {
          for (int i = 0; i < AT_ONCE; i++) {
            check(one.get().get(i) == first.get(i), "two threads see two objects of one certificate");
          }
        }
        check(kept(certificates, "decoded").size() == AT_ONCE, "not each is kept once");
      }
    } finally {
      threads.shutdownNow();
    }
  }

  /** Has all decoded at the same time as others do, and what it sees when they have done so. */
  private List<X509Certificate> look(Certificates certificates, CyclicBarrier together)
      throws CertificateException, InterruptedException, BrokenBarrierException, TimeoutException {
    together.await(60, TimeUnit.SECONDS);
    for (Told one : distinct.subList(0, AT_ONCE)) {
      X509Certificate decoded = chain(certificates, "all:1", one.whole());
      check(Arrays.equals(decoded.getEncoded(), one.der), "a thread is given another certificate");
      certificates.known("all:1");
    }
    together.await(60, TimeUnit.SECONDS);
    List<X509Certificate> seen = new ArrayList<>();
    for (Told one : distinct.subList(0, AT_ONCE)) {
      seen.add(certificates.decode(one.sha256, one.base64()));
    }
    return seen;
  }

  private void eachIsDecodedAnew() throws CertificateException {
    Certificates certificates = new Certificates();
    Told one = distinct.get(0);
    X509Certificate first = chain(certificates, "a:1", one.whole());
    check(certificates.known("a:1").isEmpty(), "it is known");
    check(kept(certificates, "decoded").isEmpty() && kept(certificates, "chains").isEmpty(), "it is kept");
    forget();
    X509Certificate again = chain(certificates, "a:1", one.whole());
    check(again != first && again.equals(first), "told twice, it is decoded once");
    forget();
    X509Certificate alone = certificates.decode(one.sha256, one.base64());
    check(alone != first && alone != again && alone.equals(first), "alone, it is decoded once");
  }

  /** Has the JDK forget what it decoded: it keeps some itself. */
  private void forget() throws CertificateException {
    for (Told other : others) {
      decode(other);
    }
  }

  private void forgetQuietly() {
    try {
      forget();
    } catch (CertificateException impossible) {
      throw new IllegalStateException(impossible);
    }
  }

  /** Decodes as the JDK does. */
  private static X509Certificate decode(Told one) throws CertificateException {
    CertificateFactory factory = CertificateFactory.getInstance("X.509");
    return (X509Certificate) factory.generateCertificate(new ByteArrayInputStream(one.der));
  }

  private static X509Certificate chain(Certificates certificates, String place, List<?> told)
      throws CertificateException {
    X509Certificate[] chain = certificates.chain(place, told, Map.of());
    check(chain.length == 1, "the chain is of another length");
    return chain[0];
  }

  private static Map<?, ?> kept(Certificates certificates, String field) {
    try {
      Field of = Certificates.class.getDeclaredField(field);
      of.setAccessible(true);
      return (Map<?, ?>) of.get(certificates);
    } catch (ReflectiveOperationException renamed) {
      throw new IllegalStateException(renamed);
    }
  }

  private static void check(boolean holds, String otherwise) {
    if (!holds) {
      throw new IllegalStateException(otherwise);
    }
  }
}
