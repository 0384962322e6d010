# Becomes a server in a file system of its own: the packages of a folder lie over this machine's, and what the server
# writes outside of its site is forgotten. Nothing is installed.
packages=$1 site=$2 library=$3 port=$4 asked=$5

mount -t tmpfs none /run
mkdir /run/site /run/lock
mount --bind "$site" /run/site
cp "$library" /run/librejoin.so
for folder in etc usr var; do
    mkdir -p "/run/world/$folder/upper" "/run/world/$folder/work" "$packages/$folder"
    under="lowerdir=$packages/$folder:/$folder"
    own="upperdir=/run/world/$folder/upper,workdir=/run/world/$folder/work"
    mount -t overlay overlay -o "$under,$own" "/$folder"
done
install -m 644 /run/librejoin.so /usr/local/lib/

. /run/site/accounts.sh
export PATH=/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin
cd /run/site
. /run/site/server.sh
