/** A check has seen something else than it should. */
final class Failure extends RuntimeException {
    private static final long serialVersionUID = 1;

    Failure(String what) {
        super(what);
    }
}
