package rejoin;

import static java.lang.invoke.MethodType.methodType;

import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.util.concurrent.TimeUnit;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.BenchmarkMode;
import org.openjdk.jmh.annotations.Mode;
import org.openjdk.jmh.annotations.OutputTimeUnit;
import org.openjdk.jmh.annotations.Param;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.State;

/**
 * JSSE's session cache where it is full: patch 003 (8259886). For {@code rejoin bench insert}; it needs {@code
 * --add-exports=java.base/sun.security.util=ALL-UNNAMED}.
 */
@State(Scope.Benchmark)
@BenchmarkMode(Mode.AverageTime)
@OutputTimeUnit(TimeUnit.NANOSECONDS)
public class CacheInsert {
  private static final MethodHandle NEW_CACHE;
  /** Constant, so that it is compiled as a call. */
  private static final MethodHandle PUT;

  static {
    try {
      Class<?> cache = Class.forName("sun.security.util.Cache");
      // The package is exported to us, and not to everybody.
      MethodHandles.Lookup lookup = MethodHandles.lookup();
      NEW_CACHE = lookup.findStatic(cache, "newSoftMemoryCache", methodType(cache, int.class, int.class))
          .asType(methodType(Object.class, int.class, int.class));
      PUT = lookup.findVirtual(cache, "put", methodType(void.class, Object.class, Object.class))
          .asType(methodType(void.class, Object.class, Object.class, Object.class));
    } catch (ReflectiveOperationException missing) {
      throw new ExceptionInInitializerError(missing);
    }
  }

  /** Sessions that it may hold. */
  @Param({"20480", "204800"})
  public int entries;

  /** In seconds; 0 for ever. */
  @Param({"86400", "0"})
  public int lifetime;

  private Object cache;
  private int next;

  /** Made by JMH. */
  public CacheInsert() {}

  /** Fills it. */
  @Setup
  public void setUp() throws Throwable {
    cache = (Object) NEW_CACHE.invokeExact(entries, lifetime);
    while (next < entries) {
      put();
    }
  }

  /** One more. */
  @Benchmark
  public void put() throws Throwable {
    Integer number = next++;
    PUT.invokeExact(cache, (Object) number, (Object) number);
  }
}
