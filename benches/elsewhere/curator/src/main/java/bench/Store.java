package bench;

/** The row that a lock protects. */
interface Store {
    void stock(long pieces) throws Exception;

    long read() throws Exception;

    /** False if the store refuses it. */
    boolean write(long pieces, Seat holder) throws Exception;
}
