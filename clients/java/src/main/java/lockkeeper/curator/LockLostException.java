package lockkeeper.curator;

import java.util.concurrent.CompletableFuture;

/** The refusal of a guarded transaction: nothing was done, as the grant has ended. */
public final class LockLostException extends Exception {
    private static final long serialVersionUID = 1;

    /** Why the lock was lost; null if it was released. */
    public final Grant.Loss loss;

    LockLostException(String node, CompletableFuture<Grant.Loss> lost) {
        this(node, lost.isCancelled() ? null : lost.getNow(null));
    }

    private LockLostException(String node, Grant.Loss loss) {
        super("the lock of " + node + " is not held: " + (loss == null ? "released" : loss.name().toLowerCase()));
        this.loss = loss;
    }
}
